"""What a block leaves behind: paired hashes, counted bytes that match the formula, and metrics independent of the mesh."""

import json
from pathlib import Path

import numpy as np
import pytest

from meshrec.experiment import Block, Experiment
from meshrec.experiment.record import RunRecord
from meshrec.train.plans import cell_plans

Records = dict[tuple[int, str], RunRecord]


def test_every_cell_of_every_block_is_recorded(experiment: Experiment, results: Path, records: Records):
    assert {(ranks, name) for ranks, name in records} == {
        (ranks, cell.name) for ranks in experiment.ranks for cell in Block(experiment, ranks, 0).cells
    }
    assert {record.status for record in records.values()} == {"ok"}
    summary = json.loads((results / "4-0" / "block.json").read_text())
    assert summary["order"] == [cell.name for cell in Block(experiment, 4, 0).cells]


@pytest.mark.parametrize("name", ["init", "order", "data"])
def test_runs_are_paired_whatever_ranks_layout_and_sharding(records: Records, name: str):
    assert len({getattr(record.hashes, name) for record in records.values()}) == 1


def test_plans_differ_where_they_should(records: Records):
    plans = {key: record.hashes.plan for key, record in records.items() if record.hashes}
    assert plans[4, "1d.plain.strong"] != plans[4, "2d.plain.strong"] != plans[4, "1d-rows.plain.strong"]
    assert plans[4, "2d.plain.strong"] == plans[2, "1d.plain.strong"]  # both shard over two ranks


def test_counted_bytes_are_those_of_the_formula(records: Records):
    seen = set()
    for record in records.values():
        for name, traffic in record.traffic.items():
            assert traffic.counted == pytest.approx(traffic.analytic, rel=1e-12), (record.ranks, record.cell, name)
            seen.add(name)
    assert seen == {
        "input_exchange",
        "output_exchange",
        "gradient_exchange",
        "dense_all_reduce",
        "sync_rows",
        "sync_average",
        "sync_gradients",
        "replicated_gradients",
        "replicated_average",
        "storage_gather",
        "storage_average",
    }


def test_bytes_of_a_step_worked_out_by_hand(records: Records):
    """26 whole tables on 4 ranks in 1D: 7 or 6 a rank; b = 32, D = 8."""
    traffic = records[4, "1d.plain.strong"].traffic
    foreign = np.mean([26 - 7, 26 - 7, 26 - 6, 26 - 6])
    own = 26 / 4
    assert traffic["input_exchange"].counted == foreign * 32 * 4
    assert traffic["output_exchange"].counted == 3 * 32 * own * 8 * 4
    assert traffic["gradient_exchange"].counted == foreign * 32 * 8 * 4
    rows = records[4, "1d-rows.plain.strong"].traffic
    assert rows["output_exchange"].counted == rows["gradient_exchange"].counted == 3 * 32 * 26 * 8 * 4


def test_bytes_of_replicated_tables_worked_out_by_hand(records: Records):
    """Tables of 8 and 77 rows, D = 8, N = M = 2; 32 steps with an average after each third, and one for what is left over."""
    traffic = records[4, "2d-mixed.plain.strong"].traffic
    assert traffic["replicated_gradients"].counted == 2 * (1 / 2) * 85 * (8 + 1) * 4  # in the group, a mark for each row
    assert traffic["replicated_average"].counted == pytest.approx(2 * (3 / 4) * 85 * (8 + 1) * 4 * 11 / 32, rel=1e-12)
    assert (traffic["replicated_gradients"].dimension, traffic["replicated_average"].dimension) == ("shard", "world")
    # 23 whole tables, 12 and 11 a rank, and the two halves of the last one
    assert traffic["input_exchange"].counted == np.mean([23 + 2 - 13, 23 + 2 - 12]) * 32 * 4


def test_bytes_of_stored_parts_worked_out_by_hand(records: Records):
    """1105 rows over the two ranks of a group, each halved over its twins; rounding up adds less than a row."""
    traffic = records[4, "2d-stored.plain.strong"].traffic
    parts = 1105 * (8 + 1) / 2 / 2
    assert parts <= traffic["storage_average"].counted / 4 < parts + 1
    assert traffic["storage_gather"].counted == 2 * traffic["storage_average"].counted
    assert traffic["storage_gather"].dimension == "replicate"


def test_nothing_is_exchanged_where_there_is_no_one(records: Records):
    assert records[1, "1d.plain.strong"].traffic == {}
    assert not {"input_exchange", "output_exchange"} & set(records[2, "2d.plain.strong"].traffic)  # N = 1
    assert not {"sync_rows", "sync_average"} & set(records[4, "1d.plain.strong"].traffic)  # M = 1


def test_measured_memory_is_that_of_the_formula(records: Records):
    for record in records.values():
        for component, memory in record.memory.items():
            if memory.analytic_max is not None:
                wanted = pytest.approx(memory.analytic_max, rel=1e-3, abs=4)  # abs: the dense optimizer's step counter
                assert memory.measured_max == wanted, (record.ranks, record.cell, component)


def test_replication_raises_table_memory_by_the_formula(experiment: Experiment, records: Records):
    """Extra table memory is S(M − 1)/T a rank, on average over the ranks."""
    whole = sum(experiment.dataset.rows_of_tables) * experiment.model.embedding_dim * 4
    flat, replicated = (records[4, name].memory["tables"].measured_mean for name in ("1d.plain.strong", "2d.plain.strong"))
    assert replicated - flat == whole * (2 - 1) / 4


def test_storage_over_the_twins_halves_table_memory(records: Records):
    for component in ("tables", "optimizer_state"):
        whole, stored = (records[4, f"{name}.plain.strong"].memory[component].measured_mean for name in ("2d", "2d-stored"))
        assert whole / 2 <= stored <= whole / 2 + 4


def test_a_planned_cell_has_the_plan_of_the_stores_frequencies(experiment: Experiment, store: Path, records: Records):
    found = cell_plans(experiment, "planned", 4, store)
    assert [cell.name for plan in found for cell in plan.cells] == ["planned.plain.strong"]
    record = records[4, "planned.plain.strong"]
    assert record.hashes
    assert record.live
    assert record.hashes.plan == found[0].plan.hash
    assert record.hashes.plan not in {
        other.hashes.plan for key, other in records.items() if other.hashes and key[1] != record.cell
    }
    assert record.live["rows_held"] == found[0].plan.rows_held(0)


def test_metrics_do_not_depend_on_ranks_or_sharding(records: Records):
    """1D computes the same at any T: evaluation covers every row once and rounds alike."""
    found = [records[ranks, f"{layout}.plain.strong"].metrics for ranks in (1, 2, 4) for layout in ("1d", "1d-rows")]
    found += [records[4, f"{layout}.plain.strong"].metrics for layout in ("planned", "exact")]
    assert {metrics.eval_samples for metrics in found if metrics} == {512}
    for name in ("logloss", "ne", "auc"):
        values = [getattr(metrics, name) for metrics in found]
        assert max(values) - min(values) < 1e-4, name


def test_metrics_do_not_depend_on_how_rows_are_stored(records: Records):
    one, other = (records[4, f"{layout}.plain.strong"].metrics for layout in ("2d", "2d-stored"))
    assert one
    assert other
    assert (one.logloss, one.auc, one.train_loss) == (other.logloss, other.auc, other.train_loss)


def test_phases_add_up_to_the_step(records: Records):
    for record in records.values():
        assert record.metrics
        step = record.metrics.step_seconds  # of the slowest rank in each step
        assert sum(phase.mean for phase in record.phases.values()) <= 1.001 * step, (record.ranks, record.cell)
        assert sum(phase.max for phase in record.phases.values()) > 0.8 * step, (record.ranks, record.cell)


def test_live_state_says_what_the_cell_is(records: Records):
    live = records[4, "2d.scaled.strong"].live
    assert live
    assert (live["optimizer"], live["replicas"], live["shards"]) == ("EXACT_ROWWISE_ADAGRAD", 2, 2)
    assert live["moment_scale"] == pytest.approx(2, rel=1e-5)
    assert live["lr"] == pytest.approx(0.05 * 2**0.5, rel=1e-6)


def test_moments_that_are_stored_in_parts_are_read_where_they_are_whole(records: Records):
    live = records[4, "2d-stored.inside.strong"].live
    assert live
    assert live["initial_moment"] == pytest.approx(1e-5, rel=1e-6)
