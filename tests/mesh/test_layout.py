import itertools

import pytest

from meshrec.mesh.layout import MeshLayout

LAYOUTS = [
    MeshLayout(ranks, replicas, order)
    for ranks, replicas, order in itertools.product([1, 2, 4, 12], [1, 2, 3, 4], ["replicas-adjacent", "shards-adjacent"])
    if ranks % replicas == 0
]


def test_the_papers_order_puts_twins_next_to_each_other():
    layout = MeshLayout(8, 2, "replicas-adjacent")
    assert layout.replica_groups() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert layout.sharding_groups() == [[0, 2, 4, 6], [1, 3, 5, 7]]  # group i is {M·r + i}


def test_the_other_order_puts_a_group_on_neighbouring_ranks():
    layout = MeshLayout(8, 2, "shards-adjacent")
    assert layout.sharding_groups() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert layout.replica_groups() == [[0, 4], [1, 5], [2, 6], [3, 7]]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_rank_is_in_one_group_of_each_dimension(layout):
    for groups, size in ((layout.sharding_groups(), layout.shards), (layout.replica_groups(), layout.replicas)):
        assert sorted(rank for group in groups for rank in group) == list(range(layout.ranks))
        assert {len(group) for group in groups} == {size}


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_coordinates_invert_rank_at(layout):
    for rank in range(layout.ranks):
        replica, shard = layout.coordinates(rank)
        assert layout.rank_at(replica, shard) == rank
        assert rank in layout.sharding_groups()[replica]
        assert rank in layout.replica_groups()[shard]


def test_replicas_that_do_not_divide_the_ranks_are_refused():
    with pytest.raises(ValueError, match="3 replicas don't divide 4 ranks"):
        MeshLayout(4, 3)
