"""What one rank knows of a finished run, and how the ranks' knowledge becomes the numbers of a record."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshrec.experiment.record import Memory, Metrics, Phase, Traffic
from meshrec.measure.clock import PHASES
from meshrec.measure.digest import add
from meshrec.measure.ledger import Entry
from meshrec.measure.quality import Quality


class HashMismatch(RuntimeError):
    """Ranks that must hold the same thing don't."""


class UncountedTraffic(RuntimeError):
    """A collective sends bytes that the ledger doesn't know."""


@dataclass(frozen=True)
class RankSummary:
    """One rank's share of a run."""

    replica: int
    tables_digest: int
    """Of the initial rows that it held."""
    dense_digest: int
    order_digest: int
    live: dict[str, Any]
    losses: NDArray[np.float32]
    """[steps] global mean loss."""
    step_seconds: NDArray[np.float64]
    """[steps]."""
    phase_seconds: NDArray[np.float64]
    """[steps, phases]."""
    traffic: dict[str, Entry]
    """Counted over all steps."""
    analytic_traffic: dict[str, float]
    """By formula, bytes a step."""
    memory: dict[str, int]
    analytic_memory: dict[str, int]


def init_hash(ranks: list[RankSummary]) -> str:
    """Hash of the initial weights, after a check that all replicas started from the same ones.

    Raises:
        HashMismatch: replicas or ranks started from different weights.
    """
    by_replica: dict[int, int] = {}
    for rank in ranks:
        by_replica[rank.replica] = add(by_replica.get(rank.replica, 0), rank.tables_digest)
    dense = {rank.dense_digest for rank in ranks}
    if len(set(by_replica.values())) != 1 or len(dense) != 1:
        raise HashMismatch(f"replicas started from different weights: tables {by_replica}, dense parameters {sorted(dense)}")
    return f"{add(by_replica[0], dense.pop()):016x}"


def order_hash(ranks: list[RankSummary]) -> str:
    """Hash of the samples that all ranks together were served, and of their positions."""
    return f"{add(*(rank.order_digest for rank in ranks)):016x}"


def metrics(ranks: list[RankSummary], quality: Quality, eval_samples: int, global_batch: int, warmup_steps: int) -> Metrics:
    """Metrics of the run. A step lasts as long as its slowest rank; the warm-up is left out of the timing."""
    losses = ranks[0].losses
    steps = losses.size
    slowest = np.max([rank.step_seconds for rank in ranks], axis=0)[timed(steps, warmup_steps)]
    return Metrics(
        samples=steps * global_batch,
        eval_samples=eval_samples,
        logloss=quality.logloss,
        ne=quality.ne,
        auc=quality.auc,
        train_loss=float(losses[-max(1, steps // 10) :].mean(dtype=np.float64)),
        steps=steps,
        timed_steps=slowest.size,
        step_seconds=float(slowest.mean()),
        samples_per_second=float(slowest.size * global_batch / slowest.sum()),
    )


def phases(ranks: list[RankSummary], warmup_steps: int) -> dict[str, Phase]:
    """Seconds by phase over the timed steps."""
    steps = timed(ranks[0].losses.size, warmup_steps)
    seconds = np.stack([rank.phase_seconds[steps] for rank in ranks])  # [ranks, steps, phases]
    over_ranks = seconds.mean(axis=0)
    return {
        name: Phase(
            mean=float(over_ranks[:, i].mean()),
            max=float(seconds[:, :, i].max(axis=0).mean()),
            p50=float(np.quantile(over_ranks[:, i], 0.5)),
            p95=float(np.quantile(over_ranks[:, i], 0.95)),
        )
        for i, name in enumerate(PHASES)
    }


def traffic(ranks: list[RankSummary]) -> dict[str, Traffic]:
    """Bytes a step and rank, counted and by formula, of every collective.

    Raises:
        UncountedTraffic: the formula has a collective that was never counted.
    """
    steps = ranks[0].losses.size
    known: dict[str, Entry] = {name: entry for rank in ranks for name, entry in rank.traffic.items()}
    uncounted = {name for rank in ranks for name, sent in rank.analytic_traffic.items() if sent} - set(known)
    if uncounted:
        raise UncountedTraffic(f"by formula there is traffic of {sorted(uncounted)}, but none was counted")
    return {
        name: Traffic(
            dimension=entry.dimension,
            calls=float(np.mean([rank.traffic[name].calls if name in rank.traffic else 0 for rank in ranks])) / steps,
            counted=float(np.mean([rank.traffic[name].sent_bytes if name in rank.traffic else 0.0 for rank in ranks])) / steps,
            analytic=float(np.mean([rank.analytic_traffic.get(name, 0.0) for rank in ranks])),
        )
        for name, entry in sorted(known.items())
    }


def memory(ranks: list[RankSummary]) -> dict[str, Memory]:
    """Bytes by component, mean and largest over the ranks."""
    table: dict[str, Memory] = {}
    for name in ranks[0].memory:
        measured = [rank.memory[name] for rank in ranks]
        formula = [rank.analytic_memory[name] for rank in ranks] if name in ranks[0].analytic_memory else []
        table[name] = Memory(
            measured_mean=float(np.mean(measured)),
            measured_max=max(measured),
            analytic_mean=float(np.mean(formula)) if formula else None,
            analytic_max=max(formula) if formula else None,
        )
    return table


def timed(steps: int, warmup_steps: int) -> slice:
    """Steps that count for timing: all but the warm-up, but never none."""
    return slice(min(warmup_steps, steps - 1), steps)
