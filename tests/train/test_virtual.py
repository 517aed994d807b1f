"""A virtual block: one process that computes what the groups compute, recorded as such."""

from itertools import pairwise
from pathlib import Path

import pytest

from meshrec.experiment import Experiment
from meshrec.experiment.record import RunRecord, read_record
from meshrec.train.block import train_block

Records = dict[tuple[int, str], RunRecord]
CELLS = ["1d.plain.strong", "1d.scaled.strong", "2d.plain.strong", "2d.scaled.strong", "2d-rows.plain.strong"]


@pytest.fixture(scope="module")
def virtual(experiment: Experiment, store: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunRecord]:
    """A block of four ranks in one process, by cell."""
    layouts = {name: experiment.layouts[name] for name in ("1d", "2d", "2d-rows")}
    training = experiment.training.model_copy(update={"execution": "virtual"})
    out = tmp_path_factory.mktemp("virtual")
    assert train_block(experiment.model_copy(update={"layouts": layouts, "training": training}), 4, 0, store, out) == 0
    assert {path.name for path in out.glob("*.strong.json")} == {f"{cell}.json" for cell in CELLS}
    return {cell: read_record(out / f"{cell}.json") for cell in CELLS}


@pytest.mark.parametrize("cell", CELLS)
def test_the_record_says_that_one_process_stood_for_all_ranks(cell: str, virtual: dict[str, RunRecord], records: Records):
    one, many = virtual[cell], records[4, cell]
    assert (one.ranks, many.ranks) == (4, 4)
    assert (one.factors["execution"], many.factors["execution"]) == ("virtual", "ranks")
    assert one.settings_hash != many.settings_hash
    assert one.live
    assert many.live
    assert (one.live["ranks"], many.live["ranks"]) == (1, 4)
    assert one.live["local_twins"] == one.live["replicas"] == many.live["replicas"]
    assert one.live["shards"] == 1
    assert one.traffic == {}


@pytest.mark.parametrize("cell", CELLS)
def test_it_starts_from_the_same_weights_and_sees_the_same_samples(cell: str, virtual: dict[str, RunRecord], records: Records):
    one, many = virtual[cell].hashes, records[4, cell].hashes
    assert one
    assert many
    assert one.model_dump(exclude={"plan"}) == many.model_dump(exclude={"plan"})


@pytest.mark.parametrize("name", ["logloss", "ne", "auc", "train_loss"])
@pytest.mark.parametrize("cell", CELLS)
def test_its_quality_is_that_of_the_ranks(cell: str, name: str, virtual: dict[str, RunRecord], records: Records):
    assert of(virtual[cell], name) == pytest.approx(of(records[4, cell], name), abs=1e-4)


def of(record: RunRecord, metric: str) -> float:
    return float(getattr(record.metrics, metric))


def test_cells_differ_by_more_than_the_rounding(virtual: dict[str, RunRecord]):
    """Otherwise the test above would prove nothing."""
    losses = sorted(of(record, "logloss") for record in virtual.values())
    assert min(b - a for a, b in pairwise(losses)) > 2e-4


@pytest.mark.parametrize("cell", CELLS)
def test_measured_memory_is_that_of_the_formula(cell: str, virtual: dict[str, RunRecord]):
    """All groups' tables are in one process."""
    for component, memory in virtual[cell].memory.items():
        if memory.analytic_max is not None:
            assert memory.measured_max == pytest.approx(memory.analytic_max, rel=1e-3, abs=4), component
