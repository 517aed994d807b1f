"""Every collective on a mesh of 2 × 2 ranks: what arrives, and the bytes that the ledger says were sent."""

from typing import Any

import pytest

from meshrec.measure.ledger import Entry
from meshrec.mesh.launch import launch
from support.rank_functions import use_every_collective


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    """Of ranks 0 to 3; groups are {0, 2} and {1, 3}, twins {0, 1} and {2, 3}."""
    return launch(use_every_collective, 4, timeout=60, collective_timeout=20)


def test_parts_of_unequal_size_go_to_their_ranks(found: list[dict[str, Any]]):
    """Shard 0 sends 1 number to itself and 3 to shard 1, which sends 2 and 4."""
    assert [said["all_to_all"] for said in found] == [
        [0, 200, 201],
        [100, 300, 301],
        [1, 2, 3, 202, 203, 204, 205],
        [101, 102, 103, 302, 303, 304, 305],
    ]


def test_sums_are_over_the_asked_dimension(found: list[dict[str, Any]]):
    assert [said["shard"] for said in found] == [[2] * 5, [4] * 5, [2] * 5, [4] * 5]
    assert [said["replicate"] for said in found] == [[1] * 5, [1] * 5, [5] * 5, [5] * 5]
    assert [said["world"] for said in found] == [[6] * 5] * 4


def test_equal_parts_are_gathered_in_the_order_of_their_ranks(found: list[dict[str, Any]]):
    wanted = [[[0, 0], [1, 1]]] * 2 + [[[2, 2], [3, 3]]] * 2
    assert [said["gathered"] for said in found] == wanted
    assert [said["gathered into"] for said in found] == [[0, 0, 1, 1]] * 2 + [[2, 2, 3, 3]] * 2


def test_a_sum_is_scattered_in_the_order_of_the_ranks(found: list[dict[str, Any]]):
    """Each rank r hands in r + [0, 1, 2, 3]; of twins' sums each gets its half."""
    assert [said["scattered"] for said in found] == [[1, 3], [5, 7], [5, 7], [9, 11]]


def test_bytes_sent_are_counted_by_name_and_dimension(found: list[dict[str, Any]]):
    """Numbers of 4 bytes. What a rank keeps isn't sent; an all-reduce over n ranks sends 2(n − 1)/n of its bytes."""
    for rank, said in enumerate(found):
        assert said["ledger"] == {
            "exchange": Entry("shard", 1, 3 * 4 if rank < 2 else 2 * 4),
            "sum over shard": Entry("shard", 1, 2 / 2 * 20),
            "sum over replicate": Entry("replicate", 1, 2 / 2 * 20),
            "sum over world": Entry("world", 1, 2 * 3 / 4 * 20),
            "gather": Entry("replicate", 2, 2 * 8),
            "scatter": Entry("replicate", 1, 1 / 2 * 16),
        }


def test_what_was_started_is_there_after_waiting(found: list[dict[str, Any]]):
    assert [said["waited twice"] for said in found] == [[6, 6, 6]] * 4


def test_a_group_of_one_sends_nothing(found: list[dict[str, Any]]):
    for said in found:
        assert said["alone"] == [[0, 1, 2, 3], [0, 1, 2, 3], [[0, 1, 2, 3]], [0, 1, 2, 3], [0, 1, 2, 3]]
        assert said["sent alone"] == {}
