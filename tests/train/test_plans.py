"""`meshrec plan` shows the plans that runs make."""

from pathlib import Path

import pytest

from meshrec.data.prepare import prepare
from meshrec.embeddings.plan import PlanError
from meshrec.experiment import Cell, Experiment
from meshrec.train.plans import cell_plans
from meshrec.train.setup import make_cell_plan
from support.experiments import OPTIMIZERS, small_experiment

LAYOUTS = {"1d": {}, "2d": {"replicas": 2}, "planned": {"sharding": "planned"}, "tight": {"memory_limit": 28_000}}


def experiment_of(*optimizers: str, **changes) -> Experiment:
    return small_experiment([2, 4], LAYOUTS, {name: OPTIMIZERS[name] for name in optimizers}, **changes)


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("data") / "store"
    prepare(experiment_of("plain").dataset, path)
    return path


def test_cells_with_the_same_plan_share_it(store: Path):
    experiment = experiment_of("plain", "scaled", "sgd")
    plans = cell_plans(experiment, "1d", 2, store)
    assert [[cell.name for cell in found.cells] for found in plans] == [
        ["1d.plain.strong", "1d.scaled.strong"],
        ["1d.sgd.strong"],  # no optimizer state: other bytes
    ]
    assert plans[0].plan == make_cell_plan(plans[0].cells[0])
    assert "1d.plain.strong at 2 ranks, 1d.scaled.strong at 2 ranks" in plans[0].text()
    assert "26 tables over 2 ranks" in plans[0].text()


def test_planned_cells_are_planned_from_the_store(store: Path):
    found = cell_plans(experiment_of("plain"), "planned", 4, store)
    assert len(found) == 1
    assert found[0].frequencies is not None
    assert [counts.sum() for counts in found[0].frequencies] == [4096] * 26
    assert "gap at most" in found[0].text() or len(found[0].plan.replicated) == 26
    with pytest.raises(PlanError, match="name the store"):
        cell_plans(experiment_of("plain"), "planned", 4, None)


def test_the_density_optimizer_gets_no_replicated_tables(store: Path):
    level = {"kind": "density_scaled_rowwise_adagrad", "lr": 0.1, "replicas": 2}
    levels = {"plain": OPTIMIZERS["plain"], "density": level}
    training = {"kernel": "torch"}
    large = {"strong": {"global_batch": 4096}}  # of small ones, an all-reduce more costs more than it saves
    experiment = small_experiment([2], {"planned": {"sharding": "planned"}}, levels, scaling=large, training=training)
    plain, density = cell_plans(experiment, None, None, store)
    assert plain.plan.replicated
    assert not density.plan.replicated


def test_one_process_for_all_groups_has_no_limit_and_no_sharding():
    experiment = experiment_of("plain", training={"execution": "virtual"})
    cell = Cell(experiment, 4, 0, "tight", "plain", "strong")
    assert make_cell_plan(cell).owners == 1
    assert "virtual: one process holds all tables" in cell_plans(experiment, "tight", 4, None)[0].text()


@pytest.mark.parametrize(
    ("layout", "ranks", "message"),
    [("3d", None, "no layout 3d; it has"), (None, 3, r"no ranks 3; it has \[2, 4\]")],
)
def test_unknown_levels_are_named(layout, ranks, message):
    with pytest.raises(PlanError, match=message):
        cell_plans(experiment_of("plain"), layout, ranks, None)


def test_a_store_of_other_tables_is_refused(store: Path):
    dataset = {"kind": "synthetic", "train_samples": 4096, "eval_samples": 512, "table_rows": 9}
    with pytest.raises(PlanError, match="has tables of"):
        cell_plans(experiment_of("plain", dataset=dataset), "1d", 2, store)
