"""Memory by formula against bytes worked out by hand, and a peak that belongs to one run."""

import resource
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from meshrec.measure.memory import analytic_memory, peak_rss_bytes, reset_peak_rss
from meshrec.measure.wire import StepShape

MIB = 2**20
SHAPE = StepShape(
    ranks=6,
    replicas=3,
    shards=2,
    rank_batch=32,
    all_ids=26,
    own_ids=11,
    all_width=26 * 8,
    own_width=11 * 8,
    model_width=26 * 8,
    dense_parameters=100,
    rows=50,
    weights=400,
    states=50,
)


def test_whole_tables():
    """A vector has 32 bytes. 2·32 samples of the group look up 11 tables here; 32 samples get vectors of 26 tables."""
    pooled, embeddings = 64 * 11 * 32, 32 * 26 * 32  # 22,528 and 26,624
    assert analytic_memory(SHAPE, dense_state=1) == {
        "tables": 1600,
        "optimizer_state": 200,
        "dense_parameters": 400,
        "dense_gradients": 404,  # the loss rides along
        "dense_state": 400,
        "embedding_activations": pooled + embeddings,
        "embedding_gradients": pooled + embeddings,
        "exchange_buffers": pooled + embeddings,
    }


def test_split_rows():
    """26 partial tables here, and partial vectors of all 52 shards arrive before they are summed to 26."""
    pooled, arriving, embeddings = 64 * 26 * 32, 32 * 52 * 32, 32 * 26 * 32
    found = analytic_memory(replace(SHAPE, all_ids=52, own_ids=26, all_width=52 * 8, own_width=26 * 8), dense_state=1)
    assert found["embedding_activations"] == found["embedding_gradients"] == pooled + embeddings
    assert found["exchange_buffers"] == pooled + arriving


def test_sizes_are_numbers_and_not_tables():
    """90 numbers a sample are pooled here, 300 everywhere, and the model reads 250 of them, some of replicated tables."""
    found = analytic_memory(replace(SHAPE, all_width=300, own_width=90, model_width=250), dense_state=0)
    assert found["embedding_activations"] == found["embedding_gradients"] == 64 * 90 * 4 + 32 * 250 * 4
    assert found["exchange_buffers"] == 64 * 90 * 4 + 32 * 300 * 4


def test_a_group_of_one_needs_no_buffers():
    alone = replace(SHAPE, ranks=3, shards=1, own_ids=26, own_width=208)
    found = analytic_memory(alone, dense_state=1)
    assert found["exchange_buffers"] == 0
    assert found["embedding_activations"] == 2 * 32 * 26 * 32


def test_optimizers_without_state_hold_none():
    found = analytic_memory(replace(SHAPE, states=0), dense_state=0)
    assert (found["optimizer_state"], found["dense_state"]) == (0, 0)
    assert analytic_memory(SHAPE, dense_state=2)["dense_state"] == 800


def test_replicated_tables_come_on_top_of_the_shards():
    """130 weights and 20 numbers of state more; whatever the storage, since each rank looks its own samples up in them."""
    replicated = replace(SHAPE, replicated_rows=15, replicated_weights=130, replicated_states=20)
    for storage, weights, states in ((1, 400, 50), (3, 134, 17)):
        found = analytic_memory(replicated, dense_state=0, storage=storage)
        assert (found["tables"], found["optimizer_state"]) == (4 * (weights + 130), 4 * (states + 20))


@pytest.mark.parametrize(("storage", "weights", "states"), [(2, 200, 25), (3, 134, 17), (4, 100, 13)])
def test_a_shard_stored_over_some_ranks_is_cut_into_equal_parts(storage: int, weights: int, states: int):
    """A third of 400 is 133 and a bit: all parts have the size of the largest, the last one is filled up."""
    whole, part = (analytic_memory(SHAPE, dense_state=1, storage=ranks) for ranks in (1, storage))
    assert part == whole | {"tables": 4 * weights, "optimizer_state": 4 * states}


def test_one_process_holds_the_tables_of_all_its_groups_and_one_dense_model():
    alone, twins = (analytic_memory(SHAPE, dense_state=1, local_twins=count) for count in (1, 3))
    assert twins == alone | {"tables": 3 * 1600, "optimizer_state": 3 * 200}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no peak of one run: see below")
def test_the_peak_is_in_bytes_and_of_the_time_since_the_reset():
    resettable = can_reset()
    reset_peak_rss()
    before = peak_rss_bytes()
    assert before is not None
    assert before % resource.getpagesize() == 0
    assert before == pytest.approx(psutil.Process().memory_info().rss, abs=32 * MIB)
    block = np.ones(96 * MIB, np.uint8)
    del block
    after = peak_rss_bytes()
    assert after is not None
    assert 80 * MIB < after - before < 160 * MIB
    if resettable:
        reset_peak_rss()
        assert peak_rss_bytes() < after - 64 * MIB


def can_reset() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def test_other_systems_report_no_peak_rather_than_that_of_all_runs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert peak_rss_bytes() is None
