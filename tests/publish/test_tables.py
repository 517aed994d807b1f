"""Tables from records: every run a row, and records that can't be compared refused."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from meshrec.experiment import Block, Experiment, blocks
from meshrec.experiment.record import RecordError
from meshrec.publish.files import ResultsError
from meshrec.publish.tables import PairingError, write_tables
from publish.planted import Planted, RunRecord, failed, smoke

AT = (2, 1, "2d.plain.strong")


def at(place: tuple[int, int, str], change: Callable[[RunRecord], RunRecord | None]) -> Callable[[RunRecord], RunRecord | None]:
    """Apply a change to one record."""
    return lambda record: change(record) if (record.ranks, record.seed, record.cell) == place else record


def tables_of(
    results: Path, change: Callable[[RunRecord], RunRecord | None], experiment: Experiment | None = None
) -> pd.DataFrame:
    experiment = experiment or smoke()
    Planted(change=change).write(experiment, results)
    write_tables(experiment, results)
    return pd.read_parquet(results / "runs.parquet")


def with_hash(name: str, value: str) -> Callable[[RunRecord], RunRecord]:
    """Record with another hash."""

    def change(record: RunRecord) -> RunRecord:
        assert record.hashes is not None
        return record.model_copy(update={"hashes": record.hashes.model_copy(update={name: value})})

    return change


def test_one_row_per_run_and_part(tmp_path: Path) -> None:
    runs = tables_of(tmp_path, lambda record: record)
    expected = [(block.ranks, block.seed, cell.name) for block in blocks(smoke()) for cell in block.cells]
    assert sorted(runs[["ranks", "seed", "cell"]].itertuples(index=False, name=None)) == sorted(expected)
    assert len(runs) == 3 * (2 + 4 + 4)
    assert set(runs["status"]) == {"ok"}
    row = runs[(runs["ranks"] == 4) & (runs["seed"] == 2) & (runs["cell"] == "2d.scaled.strong")].iloc[0]
    wanted = Planted().record(next(cell for cell in Block(smoke(), 4, 2).cells if cell.name == "2d.scaled.strong"))
    assert wanted.metrics is not None
    assert (row["ne"], row["samples_per_second"], row["steps"]) == (wanted.metrics.ne, wanted.metrics.samples_per_second, 50)
    assert (row["replicas"], row["moment_scale"], row["execution"], row["init_hash"]) == (2, 2.0, "ranks", "init2")
    assert row["optimum_ne"] == 0.80
    assert (row["set_up_seconds"], row["train_seconds"], row["evaluate_seconds"]) == (1.0, 6.0, 0.5)
    assert len(pd.read_parquet(tmp_path / "phases.parquet")) == 2 * 30
    assert len(pd.read_parquet(tmp_path / "memory.parquet")) == 2 * 30
    assert len(pd.read_parquet(tmp_path / "bytes.parquet")) == 30 + 12


def test_csv_and_parquet_agree_and_no_temporary_is_left(tmp_path: Path) -> None:
    tables_of(tmp_path, lambda record: record)
    for name in ("runs", "phases", "bytes", "memory"):
        parquet = pd.read_parquet(tmp_path / f"{name}.parquet")
        csv = pd.read_csv(tmp_path / f"{name}.csv", dtype=parquet.dtypes.to_dict())
        pd.testing.assert_frame_equal(csv, parquet)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == sorted(
        f"{name}.{suffix}" for name in ("runs", "phases", "bytes", "memory") for suffix in ("csv", "parquet")
    )


def test_failed_run_is_a_row_with_its_reason(tmp_path: Path) -> None:
    runs = tables_of(tmp_path, at(AT, failed)).set_index(["ranks", "seed", "cell"])
    assert (runs.loc[AT, "status"], runs.loc[AT, "lr"]) == ("failed", 0.02)
    assert "not finite at step 7" in runs.loc[AT, "reason"]
    assert pd.isna(runs.loc[AT, "ne"])
    phases = pd.read_parquet(tmp_path / "phases.parquet")
    assert len(phases) == 2 * 29


def test_missing_record_is_a_row_with_its_factors(tmp_path: Path) -> None:
    runs = tables_of(tmp_path, at(AT, lambda _: None)).set_index(["ranks", "seed", "cell"])
    assert runs.loc[AT, "status"] == "missing"
    assert tuple(runs.loc[AT, ["layout", "optimizer", "replicas", "global_batch"]]) == ("2d", "plain", 2, 2048)


def test_nothing_run_yet_gives_tables_with_all_columns(tmp_path: Path) -> None:
    runs = tables_of(tmp_path, lambda _: None)
    assert set(runs["status"]) == {"missing"}
    assert list(pd.read_csv(tmp_path / "bytes.csv").columns[-5:]) == ["collective", "dimension", "calls", "counted", "analytic"]


@pytest.mark.parametrize("name", ["init", "order", "data"])
def test_hash_that_differs_in_a_block_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(PairingError, match=rf"block 2-1: {name} hashes differ.*other: 2-1/2d\.plain\.strong"):
        tables_of(tmp_path, at(AT, with_hash(name, "other")))
    assert not (tmp_path / "runs.parquet").exists()


@pytest.mark.parametrize("name", ["init", "order"])
def test_hash_that_differs_between_rank_counts_is_an_error(tmp_path: Path, name: str) -> None:
    change = with_hash(name, "other")
    with pytest.raises(PairingError, match=f"seed 1: {name} hashes differ"):
        tables_of(tmp_path, lambda record: change(record) if (record.ranks, record.seed) == (2, 1) else record)


def test_other_plan_is_no_error(tmp_path: Path) -> None:
    assert set(tables_of(tmp_path, at(AT, with_hash("plan", "other")))["status"]) == {"ok"}


@pytest.mark.parametrize(("field", "value"), [("settings_hash", "0" * 16), ("seed", 7), ("cell", "1d.plain.strong")])
def test_record_of_another_run_is_an_error_that_names_the_file(tmp_path: Path, field: str, value: object) -> None:
    Planted().write(smoke(), tmp_path)
    path = tmp_path / "blocks" / "2-1" / "2d.plain.strong.json"
    record = RunRecord.model_validate_json(path.read_text()).model_copy(update={field: value})
    path.write_text(record.model_dump_json())
    with pytest.raises(
        ResultsError, match=rf"2-1/2d\.plain\.strong\.json: {field}: found .* delete it and run its block again"
    ):
        write_tables(smoke(), tmp_path)


def test_changed_experiment_refuses_old_records(tmp_path: Path) -> None:
    Planted().write(smoke(), tmp_path)
    training = smoke().training.model_copy(update={"warmup_steps": 9})
    with pytest.raises(ResultsError, match="settings_hash"):
        write_tables(smoke().model_copy(update={"training": training}), tmp_path)


def test_ok_without_metrics_and_damaged_records_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="status is ok but"):
        tables_of(tmp_path, at(AT, lambda record: record.model_copy(update={"metrics": None})))
    (tmp_path / "blocks" / "2-1" / "2d.plain.strong.json").write_text('{"schema_version": 1')
    with pytest.raises(RecordError, match=r"2d\.plain\.strong\.json"):
        write_tables(smoke(), tmp_path)
