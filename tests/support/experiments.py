"""Small experiments and batches for tests, built through the real schema."""

from typing import Any

import numpy as np

from meshrec.data.batches import Batch
from meshrec.experiment import Cell, Experiment

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"kind": "sgd", "lr": 0.5},
    "plain": {"kind": "rowwise_adagrad", "lr": 0.02, "eps": 3e-3},
    "large_eps": {"kind": "rowwise_adagrad", "lr": 1.0, "eps": 0.1},
    "scaled": {"kind": "moment_scaled_rowwise_adagrad", "lr": 0.02, "eps": 3e-3, "moment_scale": 2},
    "inside": {"kind": "rowwise_adagrad", "lr": 0.02, "eps": 1e-5, "eps_placement": "inside"},
    "scaled_inside": {
        "kind": "moment_scaled_rowwise_adagrad",
        "lr": 0.02,
        "eps": 1e-5,
        "eps_placement": "inside",
        "moment_scale": 3,
    },
}
"""Second moments here are about 2e-7, their roots 4e-4. With ε = 3e-3 or 1e-5 inside the root, steps depend on the moments and
yet rounding isn't amplified from step to step; with ε = 0.1 they follow the gradient's scale, to which a tiny ε is blind."""


def small_experiment(
    ranks: int | list[int], layouts: dict[str, dict[str, Any]], optimizers: dict[str, dict[str, Any]], **changes: Any
) -> Experiment:
    """An experiment with 26 small tables, D = 8 and dense SGD."""
    labels = list(layouts), list(optimizers)
    return Experiment.model_validate(
        {
            "name": "small",
            "title": "small",
            "question": "?",
            "dataset": {
                "kind": "synthetic",
                "train_samples": 4096,
                "eval_samples": 512,
                "table_rows": [5 + 3 * table for table in range(26)],
            },
            "model": {"embedding_dim": 8, "bottom_mlp": [16, 8], "top_mlp": [16, 1]},
            "training": {"dense_optimizer": {"kind": "sgd", "lr": 0.1}, "warmup_steps": 1},
            "ranks": ranks if isinstance(ranks, list) else [ranks],
            "seeds": [0],
            "scaling": {"strong": {"global_batch": 64}},
            "layouts": layouts,
            "optimizers": optimizers,
            "analysis": {"factorial": {"layouts": [labels[0][0]] * 2, "optimizers": [labels[1][0]] * 2}},
            **changes,
        }
    )


def small_cell(ranks: int, layout: dict[str, Any], optimizer: dict[str, Any], **changes: Any) -> Cell:
    """One cell of a small experiment."""
    experiment = small_experiment(ranks, {"layout": layout}, {"optimizer": optimizer}, **changes)
    return Cell(experiment, ranks, 0, "layout", "optimizer", "strong")


def random_batches(cell: Cell, steps: int, seed: int = 1) -> list[Batch]:
    """Global batches with head-heavy ids, missing ids among them, and labels that depend on the inputs."""
    generator = np.random.default_rng(seed)
    batch, rows = cell.global_batch, np.array(cell.experiment.dataset.rows_of_tables)
    batches = []
    for _ in range(steps):
        dense = generator.standard_normal((batch, 13)).astype(np.float32)
        ids = (generator.random((batch, 26)) ** 3 * rows).astype(np.int32)
        clicks = generator.random(batch) < 1 / (1 + np.exp(-dense[:, 0] - (ids[:, 25] % 3 - 1)))
        batches.append(Batch(dense, ids, clicks.astype(np.float32)))
    return batches
