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
    features=26,
    all_shards=26,
    own_shards=11,
    dim=8,
    dense_parameters=100,
    moments=True,
)


def test_whole_tables():
    """A vector has 32 bytes. 2·32 samples of the group look up 11 tables here; 32 samples get vectors of 26 tables."""
    pooled, embeddings = 64 * 11 * 32, 32 * 26 * 32  # 22,528 and 26,624
    assert analytic_memory(SHAPE, rows_held=50, dense_state=1) == {
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
    found = analytic_memory(replace(SHAPE, all_shards=52, own_shards=26), rows_held=50, dense_state=1)
    assert found["embedding_activations"] == found["embedding_gradients"] == pooled + embeddings
    assert found["exchange_buffers"] == pooled + arriving


def test_a_group_of_one_needs_no_buffers():
    alone = replace(SHAPE, ranks=3, shards=1, own_shards=26)
    found = analytic_memory(alone, rows_held=50, dense_state=1)
    assert found["exchange_buffers"] == 0
    assert found["embedding_activations"] == 2 * 32 * 26 * 32


def test_optimizers_without_state_hold_none():
    found = analytic_memory(replace(SHAPE, moments=False), rows_held=50, dense_state=0)
    assert (found["optimizer_state"], found["dense_state"]) == (0, 0)
    assert analytic_memory(SHAPE, rows_held=50, dense_state=2)["dense_state"] == 800


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
