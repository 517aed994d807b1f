"""Further ids are a fixed, uniform function of table, id and place, whatever the batch that they are asked for in."""

import numpy as np
import pytest
from scipy.stats import chi2, chisquare

from meshrec.data.hots import expand

RANDOM = np.random.default_rng(0)
HOTS, ROWS = [3, 1, 2, 5], [1000, 7, 2, 2**31 - 1]
IDS = np.stack([RANDOM.integers(0, rows, 500) for rows in ROWS], axis=1).astype(np.int32)


def splitmix(state: int) -> int:
    """The published mixing function, in Python's integers."""
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) % 2**64
    return state ^ (state >> 31)


def further(table: int, own: int, place: int, rows: int) -> int:
    golden = 0x9E3779B97F4A7C15
    start = splitmix((splitmix(table * golden % 2**64) + place * golden) % 2**64)
    return splitmix((start + own * golden) % 2**64) * rows >> 64


def test_ids_are_as_the_definition_says():
    wanted = [
        [
            own if place == 0 else further(table, own, place, ROWS[table])
            for table, own in enumerate(row)
            for place in range(HOTS[table])
        ]
        for row in IDS.tolist()
    ]
    found = expand(IDS, HOTS, ROWS)
    assert found.dtype == np.int32
    assert np.array_equal(found, wanted)


def test_known_ids_stay_the_same_for_ever():
    """Results of two versions of this project can be compared only while this holds."""
    assert expand(np.array([[5, 6]], np.int32), [3, 3], [1000, 1000]).tolist() == [[5, 787, 416, 6, 315, 390]]


def test_the_stored_id_comes_first_in_its_table():
    assert np.array_equal(expand(IDS, HOTS, ROWS)[:, [0, 3, 4, 6]], IDS)


def test_one_id_everywhere_is_the_input_itself():
    assert expand(IDS, [1, 1, 1, 1], ROWS) is IDS


@pytest.mark.parametrize("cut", [1, 137, 499])
def test_a_part_of_the_batch_gets_what_it_gets_in_the_whole(cut: int):
    parts = [expand(IDS[:cut], HOTS, ROWS), expand(IDS[cut:], HOTS, ROWS)]
    assert np.array_equal(np.concatenate(parts), expand(IDS, HOTS, ROWS))


def test_more_hots_keep_the_ids_that_were_there():
    assert np.array_equal(expand(IDS, [9, 1, 1, 1], ROWS)[:, :3], expand(IDS, HOTS, ROWS)[:, :3])


def test_every_id_is_a_row_and_the_last_rows_are_reached():
    ids = np.arange(20_000, dtype=np.int32)[:, None].repeat(3, axis=1) % np.array([2, 3, 20_000], np.int32)
    found = expand(ids, [3, 40, 40], [2, 3, 20_000])
    assert found.min() == 0
    assert (found[:, 3:43].min(), found[:, 3:43].max()) == (0, 2)
    assert found.max() == 19_999


@pytest.mark.parametrize("rows", [2, 97, 1000])
def test_further_ids_are_uniform(rows: int):
    ids = np.arange(rows, dtype=np.int32)[:, None]
    counts = np.bincount(expand(ids, [201], [rows])[:, 1:].ravel(), minlength=rows)
    assert chisquare(counts).pvalue > 1e-4


def test_a_table_of_the_largest_size_is_reached_evenly():
    found = expand(np.arange(40_000, dtype=np.int32)[:, None], [6], [2**31 - 1])[:, 1:]
    assert chisquare(np.histogram(found, bins=64, range=(0, 2**31 - 1))[0]).pvalue > 1e-4


@pytest.mark.parametrize("places", [(0, 1), (1, 2), (2, 7)])
def test_places_are_independent_of_each_other(places: tuple[int, int]):
    rows = 16
    ids = np.arange(rows * 4000, dtype=np.int32)[:, None]
    bins = expand(ids, [8], [rows * 4000])[:, places] // 4000
    assert independent(bins[:, 0], bins[:, 1], rows)


def test_tables_and_neighbouring_ids_are_independent_of_each_other():
    rows = 64_000
    found = expand(np.arange(rows, dtype=np.int32)[:, None].repeat(2, axis=1), [2, 2], [rows, rows]) // 4000
    assert independent(found[:, 1], found[:, 3], 16)
    assert independent(found[:-1, 1], found[1:, 1], 16)


def independent(a: np.ndarray, b: np.ndarray, levels: int) -> bool:
    """Pearson's test of a levels × levels table: neither too far from independence nor suspiciously close to it."""
    counts = np.zeros((levels, levels))
    np.add.at(counts, (a, b), 1)
    expected = counts.sum(1, keepdims=True) * counts.sum(0) / counts.sum()
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return 1e-5 < chi2.sf(statistic, (levels - 1) ** 2) < 1 - 1e-5


def test_a_view_is_expanded_like_its_copy():
    view = np.asfortranarray(IDS)[::2]
    assert np.array_equal(expand(view, HOTS, ROWS), expand(view.copy(order="C"), HOTS, ROWS))


def test_an_empty_batch_stays_empty():
    assert expand(IDS[:0], HOTS, ROWS).shape == (0, 11)


@pytest.mark.parametrize(("hots", "rows"), [([2], [9, 9]), ([2, 2], [9]), ([2, 0], [9, 9]), ([2, 2], [9, 0])])
def test_settings_that_fit_no_tables_are_refused(hots: list[int], rows: list[int]):
    with pytest.raises(ValueError, match=r"2 tables, hots .*, rows .*: want one of each ≥ 1"):
        expand(IDS[:, :2], hots, rows)
