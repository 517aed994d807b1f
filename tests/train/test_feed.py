import numpy as np
import pytest
import torch

from meshrec.data.batches import Batch
from meshrec.train.feed import Feed

CPU = torch.device("cpu")


def feed(hots: int = 1, order: list[int] | None = None) -> Feed:
    return Feed([5] * 26, [hots] * 26, CPU, None if order is None else np.array(order))


def batch(**ids: int) -> Batch:
    sparse = np.zeros((4, 26), np.int32)
    for table, row in ids.items():
        sparse[2, int(table.removeprefix("table"))] = row
    return Batch(np.ones((4, 13), np.float32), sparse, np.zeros(4, np.float32))


def test_a_batch_arrives_as_it_is():
    fed = feed()(batch(table3=4))
    assert fed.ids.dtype == torch.int32
    assert fed.ids[2, 3] == 4
    assert (fed.dense == 1).all()
    assert fed.labels.shape == (4,)


@pytest.mark.parametrize("row", [-1, 5, 2**31 - 1])
def test_an_id_outside_its_table_is_named(row: int):
    with pytest.raises(IndexError, match=f"table 3 has 5 rows, sample 2 of the batch asks for row {row}"):
        feed()(batch(table3=row))


@pytest.mark.parametrize("row", [-1, 5])
def test_an_evaluation_sample_is_checked_too(row: int):
    with pytest.raises(IndexError, match=f"table 3 has 5 rows, sample 2 of the batch asks for row {row}"):
        feed(order=[3, 2, 1, 0]).in_order(batch(table3=row))


def numbered() -> Batch:
    """Four samples, told apart by every part of them."""
    numbers = np.arange(4)
    dense, sparse = np.repeat(numbers[:, None], 13, axis=1), np.repeat(numbers[:, None], 26, axis=1)
    return Batch(dense.astype(np.float32), sparse.astype(np.int32), numbers.astype(np.float32))


def test_training_samples_are_taken_in_the_order_of_their_groups_and_evaluation_samples_as_they_come():
    fed, evaluated = feed(order=[0, 2, 1, 3])(numbered()), feed(order=[0, 2, 1, 3]).in_order(numbered())
    for found, wanted in ((fed, [0, 2, 1, 3]), (evaluated, [0, 1, 2, 3])):
        assert found.labels.tolist() == wanted
        assert found.dense[:, 12].tolist() == found.ids[:, 25].tolist() == wanted


def test_each_table_has_as_many_columns_as_hots():
    """26 ids of three hots; the first of a table's hots is the stored id."""
    ids = feed(hots=3)(numbered()).ids
    assert ids.shape == (4, 78)
    assert ids.dtype == torch.int32
    assert ids[:, ::3].tolist() == [[number] * 26 for number in range(4)]
    assert ((ids >= 0) & (ids < 5)).all()
    assert (ids[:, 1::3] != ids[:, ::3]).any()
