"""Model settings: what is meant when little is said, and one clear sentence for each mistake, with file, line and key."""

from pathlib import Path

import pytest

from meshrec.experiment import ExperimentError, load_experiment
from meshrec.experiment.schema import Dcnv2Model, DlrmModel, Experiment

SMOKE = (Path(__file__).resolve().parents[2] / "experiments" / "smoke.yaml").read_text()
MODEL = "model:\n  embedding_dim: 16\n  bottom_mlp: [64, 16]\n  top_mlp: [256, 64, 1]\n"
MIXED = [4, 8, *[16] * 24]


def load(folder: Path, model: str) -> Experiment:
    """The smoke experiment with other model settings, the first of which is in line 14."""
    assert SMOKE.count(MODEL) == 1
    path = folder / "smoke.yaml"
    path.write_text(SMOKE.replace(MODEL, model))
    return load_experiment(path)


def test_without_a_kind_it_is_dlrm(tmp_path: Path):
    assert load(tmp_path, MODEL).model == load(tmp_path, MODEL + "  kind: dlrm\n").model == DlrmModel()
    assert load(tmp_path, "").model == DlrmModel()


def test_one_number_is_meant_for_all_tables():
    model = DlrmModel(hots=3)
    assert model.dims_of_tables == [16] * 26
    assert model.hots_of_tables == [3] * 26
    assert DlrmModel().hots_of_tables == [1] * 26


@pytest.mark.parametrize("kind", ["dlrm", "dcnv2"])
def test_each_table_can_have_its_own(tmp_path: Path, kind: str):
    hots = [2, *[1] * 25]
    model = load(
        tmp_path, f"{MODEL}  kind: {kind}\n  hots: {hots}\n".replace("embedding_dim: 16", f"embedding_dim: {MIXED}")
    ).model
    assert model.dims_of_tables == MIXED
    assert model.hots_of_tables == hots


def test_dcnv2_needs_no_width_of_the_bottom_mlp(tmp_path: Path):
    model = load(tmp_path, "model: {kind: dcnv2, embedding_dim: 8, bottom_mlp: [5]}\n").model
    assert isinstance(model, Dcnv2Model)
    assert (model.cross_layers, model.cross_rank) == (3, 32)


@pytest.mark.parametrize("settings", [DlrmModel(embedding_dim=MIXED), Dcnv2Model(kind="dcnv2", hots=MIXED)])
def test_what_is_written_is_read_again(tmp_path: Path, settings: DlrmModel | Dcnv2Model):
    experiment = load(tmp_path, "").model_copy(update={"model": settings})
    assert Experiment.model_validate_json(experiment.model_dump_json()).model == settings


def test_settings_that_were_there_before_are_written_as_before():
    """Records' hashes depend on them."""
    old = {"embedding_dim": 16, "bottom_mlp": [64, 16], "top_mlp": [256, 64, 1]}
    assert DlrmModel().model_dump(mode="json") == {"kind": "dlrm", "hots": 1} | old


@pytest.mark.parametrize(
    ("model", "line", "key", "message"),
    [
        ("{kind: dcn}", 14, "model", "'dlrm', 'dcnv2'"),
        ("3", 14, "model", "found 3"),
        ("{embedding_dim: 18}", 14, "model.embedding_dim", "found 18, want a whole number ≥ 4 that is a multiple of 4"),
        ("{embedding_dim: 0}", 14, "model.embedding_dim", "found 0, want a whole number ≥ 4"),
        ("{embedding_dim: wide}", 14, "model.embedding_dim", "found 'wide', want a whole number"),
        ("{embedding_dim: 16.0}", 14, "model.embedding_dim", "found 16.0, want a whole number"),
        ("{embedding_dim: true}", 14, "model.embedding_dim", "found True, want a whole number"),
        ("{embedding_dim: [8, 8]}", 14, "model.embedding_dim", "found 2 numbers, want one number or 26, one for each table"),
        (f"{{embedding_dim: {[*MIXED[:25], 6]}}}", 14, "model.embedding_dim", "table 25: found 6, want a whole number ≥ 4"),
        ("{hots: 0}", 14, "model.hots", "found 0, want a whole number ≥ 1"),
        (f"{{hots: {[1, -2, *[1] * 24]}}}", 14, "model.hots", "table 1: found -2, want a whole number ≥ 1"),
        ("{hots: true}", 14, "model.hots", "found True, want a whole number ≥ 1"),
        ("{hots: []}", 14, "model.hots", "found 0 numbers, want one number or 26"),
        ("{kind: dcnv2, hots: 0}", 14, "model.hots", "found 0, want a whole number ≥ 1"),
        ("\n  embedding_dim: 32", 14, "model.bottom_mlp", "bottom_mlp ends in 16, want embedding_dim = 32"),
        ("\n  embedding_dim: 32\n  bottom_mlp: [9]", 16, "model.bottom_mlp", "bottom_mlp ends in 9, want embedding_dim = 32"),
        ("\n  top_mlp: [8, 2]", 15, "model.top_mlp", "top_mlp ends in 2, want 1 (the logit)"),
        ("\n  kind: dcnv2\n  top_mlp: [8, 2]", 16, "model.top_mlp", "top_mlp ends in 2, want 1 (the logit)"),
        ("{bottom_mlp: []}", 14, "model.bottom_mlp", "at least 1 item"),
        ("{bottom_mlp: [0, 16]}", 14, "model.bottom_mlp.0", "found 0"),
        ("{kind: dcnv2, cross_rank: 0}", 14, "model.cross_rank", "found 0"),
        ("{kind: dcnv2, cross_layers: 0}", 14, "model.cross_layers", "found 0"),
        ("{cross_layers: 2}", 14, "model.cross_layers", "unknown key"),
    ],
)
def test_a_mistake_is_named_once(tmp_path: Path, model: str, line: int, key: str, message: str):
    with pytest.raises(ExperimentError) as caught:
        load(tmp_path, f"model: {model}\n")
    (found,) = str(caught.value).splitlines()
    assert found.startswith(f"{tmp_path / 'smoke.yaml'}:{line}: {key}: ")
    assert message in found
