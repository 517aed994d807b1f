import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread

from meshrec.data.columns import Rows
from meshrec.data.describe import describe_store
from meshrec.data.writer import StoreWriter
from meshrec.publish.describe import page, write_description
from meshrec.publish.describe_pictures import draw_frequencies, draw_integers, draw_missing


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Table 0 has one row hit, table 1 none; the others are head-heavy. Integer 2 is always missing."""
    rng = np.random.default_rng(0)
    ids = (rng.random((3000, 26)) ** 4 * 499 + 1).astype(np.int32)
    ids[:, 0], ids[:, 1] = 7, 0
    ids[:900, 5] = 0
    dense = np.log1p(rng.integers(0, 5000, (3000, 13))).astype(np.float32)
    dense[:, 2] = -1
    path = tmp_path_factory.mktemp("store") / "s"
    with StoreWriter(path) as writer:
        writer.append(Rows(rng.integers(0, 2, 3000).astype(np.float32), dense, ids))
        writer.finish(2000, kind="synthetic", name="synthetic", settings={}, table_rows=[500] * 26)
    return path


def test_pictures_and_table_are_written(store, tmp_path):
    text = write_description(store, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "features.csv", "frequencies.png", "integers.png", "missing.png"
    ]  # fmt: skip
    for path in (tmp_path / "out").glob("*.png"):
        assert imread(path).shape[1] == 2160
    frame = pd.read_csv(tmp_path / "out" / "features.csv").set_index("feature")
    assert frame.loc["C6", "missing_train"] == 0.45
    assert frame.loc["C1", ["table_rows", "rows_hit", "head_share"]].tolist() == [500, 1, 1.0]
    assert frame.loc["I1":"I13", "rows_hit"].isna().all()
    assert text == page(describe_store(store))


def test_the_page_says_what_the_store_holds(store):
    lines = page(describe_store(store)).splitlines()
    clicks = describe_store(store).train.clicks
    (training,) = [line.split() for line in lines if line.startswith("training")]
    assert training == ["training", "2,000", "rows,", "click", "rate", f"{clicks / 2000:.4f}", f"({clicks:,}", "clicks)"]
    assert "I3 100.0   C2 100.0   C6 45.0" in "\n".join(lines)
    (table,) = [line.split() for line in lines if line.split()[:1] == ["C1"]]
    assert table == ["C1", "500", "1", "0", "100.0", "1", "–"]


def test_every_panel_shows_its_feature(store):
    description = describe_store(store)
    panels = draw_frequencies(description).axes
    named = [axes.get_title(loc="left") for axes in panels if axes.get_title(loc="left")]
    assert [name.split("{")[1].split("}")[0] for name in named] == [f"C{number}" for number in range(1, 27)]
    curve = panels[2].lines[0]
    assert curve.get_ydata()[0] == np.sort(description.train.hits[2][1:])[-1]
    assert curve.get_xdata()[-1] == (description.train.hits[2][1:] > 0).sum()
    assert panels[1].texts[0].get_text() == "all missing"
    heights = [bar.get_height() for bar in draw_missing(description).axes[0].patches]
    np.testing.assert_allclose(heights, 100 * description.train.missing_rates)
    integers = draw_integers(description).axes
    assert integers[2].get_title(loc="left").endswith("100 % missing")
    assert sum(bar.get_height() for bar in integers[0].patches) == pytest.approx(100)


def test_the_row_that_rare_categories_share_is_marked(store, tmp_path):
    description = describe_store(store)
    vocabulary = {"sha256": "", "sizes": [498] * 26, "min_count": 2, "variant": "kaggle"}
    manifest = description.manifest.model_validate({**description.manifest.model_dump(), "vocabulary": vocabulary})
    figure = draw_frequencies(type(description)(manifest, description.train, description.evaluation))
    (place,) = figure.axes[2].lines[1].get_ydata()
    assert place == description.train.hits[2][1]
    assert "all rare categories share" in figure.get_suptitle()
