"""The engine computes the same with every kernel."""

import pytest

from support.experiments import OPTIMIZERS, random_batches, small_cell
from support.ranks import train_on_ranks
from support.reference import largest_difference

LAYOUTS = [
    {"replicas": 1, "sharding": "row-wise"},
    {"replicas": 2, "sync_every": 3},
    {"replicas": 2, "sync": "gradients"},
]


@pytest.mark.parametrize("optimizer", ["sgd", "scaled_inside"])
def test_kernels_agree(optimizer: str):
    cells = [
        small_cell(2, layout, OPTIMIZERS[optimizer], training={"dense_optimizer": {"kind": "sgd", "lr": 0.1}, "kernel": kernel})
        for layout in LAYOUTS
        for kernel in ("fbgemm", "torch")
    ]
    states = train_on_ranks(2, cells, [random_batches(cells[0], 50)] * len(cells))
    for fbgemm, reference in zip(states[::2], states[1::2], strict=True):
        assert largest_difference(fbgemm.tables[0], reference.tables[0]) < 5e-6
        assert largest_difference(fbgemm.dense, reference.dense) < 5e-6
