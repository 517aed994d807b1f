"""Ranks' knowledge, made by hand, becomes the numbers of a record that were worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from meshrec.experiment.record import Memory, Traffic
from meshrec.measure.clock import PHASES
from meshrec.measure.ledger import Entry
from meshrec.measure.quality import Quality
from meshrec.train.summary import (
    HashMismatch,
    RankSummary,
    UncountedTraffic,
    init_hash,
    memory,
    metrics,
    order_hash,
    phases,
    traffic,
)

QUALITY = Quality(logloss=0.5, ne=0.9, auc=0.7)


def rank(step_seconds: list[float] | None = None, losses: list[float] | None = None, **changes) -> RankSummary:
    """A rank of four steps unless told otherwise."""
    seconds = np.array(step_seconds or [1.0] * len(losses or range(4)))
    return replace(
        RankSummary(
            replica=0,
            tables_digest=0,
            dense_digest=0,
            order_digest=0,
            live={},
            losses=np.array(losses or np.zeros(seconds.size), np.float32),
            step_seconds=seconds,
            phase_seconds=np.zeros((seconds.size, len(PHASES))),
            traffic={},
            analytic_traffic={},
            memory={},
            analytic_memory={},
        ),
        **changes,
    )


def of(ranks: list[RankSummary], warmup_steps: int):
    return metrics(ranks, QUALITY, eval_samples=512, global_batch=64, warmup_steps=warmup_steps)


# Slowest ranks of the four steps: 9, 3, 2, 7
RANKS = [rank([9.0, 3.0, 2.0, 3.0]), rank([8.0, 1.0, 1.0, 7.0])]


def test_a_step_lasts_as_long_as_its_slowest_rank():
    found = of(RANKS, warmup_steps=1)
    assert found.step_seconds == pytest.approx((3 + 2 + 7) / 3)
    assert found.samples_per_second == pytest.approx(3 * 64 / (3 + 2 + 7))


def test_timed_steps_are_all_but_the_warm_up():
    assert [of(RANKS, warmup_steps=warmup).timed_steps for warmup in (0, 1, 2, 3)] == [4, 3, 2, 1]
    assert of(RANKS, warmup_steps=0).step_seconds == pytest.approx((9 + 3 + 2 + 7) / 4)
    assert of(RANKS, warmup_steps=2).step_seconds == pytest.approx((2 + 7) / 2)


@pytest.mark.parametrize("warmup", [4, 5, 100])
def test_a_run_shorter_than_its_warm_up_is_timed_by_its_last_step(warmup: int):
    found = of(RANKS, warmup_steps=warmup)
    assert (found.timed_steps, found.step_seconds) == (1, 7)
    assert found.samples_per_second == pytest.approx(64 / 7)


def test_a_run_of_one_step_is_timed():
    assert of([rank([4.0])], warmup_steps=5).timed_steps == 1


def test_samples_and_steps_count_the_warm_up():
    found = of(RANKS, warmup_steps=2)
    assert (found.steps, found.samples, found.eval_samples) == (4, 4 * 64, 512)


def test_quality_is_passed_on_each_to_its_own_field():
    found = of(RANKS, warmup_steps=0)
    assert (found.logloss, found.ne, found.auc) == (0.5, 0.9, 0.7)


@pytest.mark.parametrize(
    ("losses", "wanted"),
    [
        ([*[8.0] * 27, 1.0, 2.0, 6.0], 3.0),  # three of thirty
        ([*[8.0] * 18, 1.0, 2.0], 1.5),  # two of twenty
        ([*[8.0] * 18, 2.0], 2.0),  # one of nineteen
        ([8.0, 4.0, 1.0], 1.0),  # never none
    ],
)
def test_train_loss_is_over_the_last_tenth(losses: list[float], wanted: float):
    assert of([rank(losses=losses), rank(losses=losses)], warmup_steps=1).train_loss == wanted


def in_phase(name: str, seconds: list[float]) -> RankSummary:
    table = np.zeros((len(seconds), len(PHASES)))
    table[:, PHASES.index(name)] = seconds
    return rank(phase_seconds=table)


@pytest.mark.parametrize("name", [PHASES[0], "lookup", PHASES[-1]])
def test_phases_by_hand(name: str):
    """After one step of warm-up the mean ranks are 3, 2, 6 and the slowest 4, 2, 9."""
    found = phases([in_phase(name, [100.0, 4.0, 2.0, 3.0]), in_phase(name, [100.0, 2.0, 2.0, 9.0])], warmup_steps=1)
    phase = found.pop(name)
    assert phase.mean == pytest.approx(11 / 3)
    assert phase.max == pytest.approx((4 + 2 + 9) / 3)  # neither 9, the slowest step, nor 14/3, the slower rank
    assert phase.p50 == pytest.approx(3)
    assert phase.p95 == pytest.approx(3 + 0.9 * (6 - 3))  # nine tenths of the way from the second to the third
    assert found.keys() == set(PHASES) - {name}
    assert {value for other in found.values() for value in other.model_dump().values()} == {0}


def test_phases_of_a_run_shorter_than_its_warm_up_are_those_of_its_last_step():
    found = phases([in_phase("update", [100.0, 100.0, 100.0, 2.0])], warmup_steps=9)["update"]
    assert found.model_dump() == {"mean": 2, "max": 2, "p50": 2, "p95": 2}


def test_traffic_is_calls_and_bytes_of_a_step_and_rank():
    """Four steps, warm-up and all: 8 calls and 800 or 1,600 bytes are 2 calls and 300 bytes a step."""
    ranks = [
        rank(traffic={"output_exchange": Entry("shard", 8, 800.0)}, analytic_traffic={"output_exchange": 150.0}),
        rank(traffic={"output_exchange": Entry("shard", 8, 1600.0)}, analytic_traffic={"output_exchange": 350.0}),
    ]
    assert traffic(ranks) == {"output_exchange": Traffic(dimension="shard", calls=2, counted=300, analytic=250)}


@pytest.mark.parametrize("first", [0, 1])
def test_a_collective_of_one_rank_alone_counts_as_nothing_on_the_other(first: int):
    ranks = [rank(traffic={"sync_rows": Entry("replicate", 4, 80.0)}, analytic_traffic={"sync_rows": 20.0}), rank()]
    found = traffic([ranks[first], ranks[1 - first]])
    assert found == {"sync_rows": Traffic(dimension="replicate", calls=0.5, counted=10, analytic=10)}


def test_collectives_keep_their_own_dimension_and_bytes():
    counted = {"sync_rows": Entry("replicate", 4, 80.0), "dense_all_reduce": Entry("world", 8, 400.0)}
    found = traffic([rank(traffic=counted, analytic_traffic={"sync_rows": 19.0})])
    assert found == {
        "dense_all_reduce": Traffic(dimension="world", calls=2, counted=100, analytic=0),
        "sync_rows": Traffic(dimension="replicate", calls=1, counted=20, analytic=19),
    }


def test_memory_is_mean_and_largest_over_the_ranks():
    ranks = [
        rank(memory={"tables": 100, "peak_rss": 5000}, analytic_memory={"tables": 110}),
        rank(memory={"tables": 300, "peak_rss": 2000}, analytic_memory={"tables": 290}),
        rank(memory={"tables": 230, "peak_rss": 2000}, analytic_memory={"tables": 260}),
    ]
    assert memory(ranks) == {
        "tables": Memory(measured_mean=210, measured_max=300, analytic_mean=220, analytic_max=290),
        "peak_rss": Memory(measured_mean=3000, measured_max=5000, analytic_mean=None, analytic_max=None),
    }


def started(replica: int, tables: int, dense: int = 7) -> RankSummary:
    return rank(replica=replica, tables_digest=tables, dense_digest=dense)


def test_init_hash_is_that_of_one_replicas_shards_and_the_dense_parameters():
    one = init_hash([started(0, 30), started(0, 12)])
    assert one == f"{30 + 12 + 7:016x}" == init_hash([started(0, 42)])
    assert init_hash([started(0, 30), started(1, 2**64 - 8), started(0, 12), started(1, 50)]) == one  # sums wrap


@pytest.mark.parametrize("changed", [started(0, 43), started(0, 42, dense=8)], ids=["tables", "dense"])
def test_init_hash_tells_other_weights_apart(changed: RankSummary):
    assert init_hash([changed]) != init_hash([started(0, 42)])


@pytest.mark.parametrize(
    "wrong",
    [
        [started(0, 30), started(1, 42), started(0, 12), started(1, 1)],
        [started(0, 42), started(1, 42, dense=8)],
        [started(0, 30), started(0, 12, dense=8)],
    ],
    ids=["tables of a replica", "dense of a replica", "dense of a shard"],
)
def test_different_starts_are_an_error(wrong: list[RankSummary]):
    with pytest.raises(HashMismatch, match="started from different weights"):
        init_hash(wrong)


def test_order_hash_is_over_all_ranks_of_all_replicas():
    served = [rank(replica=replica, order_digest=digest) for replica, digest in ((0, 5), (1, 2**64 - 1), (1, 12))]
    assert order_hash(served) == f"{16:016x}"


def test_traffic_that_was_never_counted_is_an_error():
    with pytest.raises(UncountedTraffic, match=r"\['sync_rows'\]"):
        traffic([rank(analytic_traffic={"sync_rows": 20.0})])
