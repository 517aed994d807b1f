import numpy as np
import pytest
import torch

from meshrec.data.batches import Batch
from meshrec.train.feed import Feed


def batch(**ids: int) -> Batch:
    sparse = np.zeros((4, 26), np.int32)
    for table, row in ids.items():
        sparse[2, int(table.removeprefix("table"))] = row
    return Batch(np.ones((4, 13), np.float32), sparse, np.zeros(4, np.float32))


def test_a_batch_arrives_as_it_is():
    fed = Feed([5] * 26, torch.device("cpu"))(batch(table3=4))
    assert fed.ids.dtype == torch.int32
    assert fed.ids[2, 3] == 4
    assert (fed.dense == 1).all()
    assert fed.labels.shape == (4,)


@pytest.mark.parametrize("row", [-1, 5, 2**31 - 1])
def test_an_id_outside_its_table_is_named(row: int):
    with pytest.raises(IndexError, match=f"table 3 has 5 rows, sample 2 of the batch asks for row {row}"):
        Feed([5] * 26, torch.device("cpu"))(batch(table3=row))
