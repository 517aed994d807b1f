"""A mesh that doesn't fit its launch is refused on every rank alike, and nobody is left waiting."""

from meshrec.mesh.launch import launch
from support.rank_functions import ask_for_a_wrong_mesh_then_a_right_one


def test_a_layout_for_another_number_of_ranks_is_refused_on_every_rank():
    found = launch(ask_for_a_wrong_mesh_then_a_right_one, 2, timeout=60, collective_timeout=20)
    for rank, said in enumerate(found):
        assert said == {
            "refusals": [
                "the layout is for 4 ranks, the launch has 2",
                "the layout is for 4 ranks, the launch has 2",
                "the layout is for 1 ranks, the launch has 2",
            ],
            "total": 21,
            "place": (rank, rank, 0),
            "sizes": [1, 2, 2],
            "same mesh when asked again": True,
        }
