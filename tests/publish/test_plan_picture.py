"""The picture of a plan shows all of its bytes and lookups, and nothing else."""

import numpy as np
import pytest
from matplotlib.image import imread

from meshrec.embeddings.plan import PlanError, TableShape, table_wise
from meshrec.embeddings.plan_loads import plan_loads
from meshrec.embeddings.planner import make_plan
from meshrec.experiment.factors import Layout
from meshrec.publish.plan_picture import draw_plan, write_plan_picture

TABLES = [TableShape(7, 8), TableShape(1000, 16, 2), TableShape(64, 8), TableShape(500, 8)]
PLAN = make_plan(TABLES, 2, Layout(tables={0: "replicated", 1: "row-wise", 2: "column-wise", 3: "row-wise"}), 4, None)
LOADS = plan_loads(PLAN, None, 4)


def test_bars_add_up_to_what_ranks_hold_and_are_asked_for():
    figure = draw_plan(PLAN, LOADS, measured=False)
    for axes, wanted in zip(figure.axes, (LOADS.memory / 1e3, LOADS.lookups), strict=True):
        drawn = np.zeros(2)
        for bar in axes.patches:
            drawn[round(bar.get_y() + bar.get_height() / 2)] += bar.get_width()
        np.testing.assert_allclose(drawn, wanted)
        assert axes.lines[0].get_xdata()[0] == pytest.approx(wanted.mean())
    assert figure.axes[0].get_xlabel().endswith("kB")
    assert "if rows were asked for alike" in figure.axes[1].get_xlabel()
    assert "alike" not in draw_plan(PLAN, LOADS, measured=True).axes[1].get_xlabel()


def test_the_legend_names_the_shardings_that_there_are():
    def names(plan):
        legend = draw_plan(plan, plan_loads(plan, None, 4), measured=True).legends[0]
        return [text.get_text() for text in legend.get_texts()]

    assert names(PLAN) == ["rows split", "columns split", "replicated", "mean rank"]
    assert names(table_wise(TABLES, 2)) == ["whole", "mean rank"]


def test_a_picture_is_written_whole_or_refused(tmp_path):
    write_plan_picture(PLAN, LOADS, True, tmp_path / "plan.png")
    assert [path.name for path in tmp_path.iterdir()] == ["plan.png"]
    assert imread(tmp_path / "plan.png").std() > 0.1
    many = [TableShape(4, 8)] * 300
    plan = table_wise(many, 300)
    with pytest.raises(PlanError, match="300 ranks can't be seen"):
        write_plan_picture(plan, plan_loads(plan, None, 4), True, tmp_path / "many.png")
