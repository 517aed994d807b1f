"""The experiments on whole public sets, which are too large for tests: Snakemake resolves them, from file to report."""

import pytest

from meshrec.experiment import load_experiment
from support.checkout import ROOT, checkout_in

from .test_workflow import jobs_of

FILES = {
    "criteo_kaggle": ("MESHREC_CRITEO_KAGGLE", ["train.txt"]),
    "criteo_terabyte": ("MESHREC_CRITEO_TERABYTE", [f"day_{day}.gz" for day in range(24)]),
}


@pytest.mark.parametrize(("name", "blocks"), [("criteo_kaggle", 6), ("criteo_terabyte", 4)])
def test_downloads_lead_to_figures(tmp_path, name, blocks):
    checkout = checkout_in(tmp_path)
    checkout.experiment(name, (ROOT / "experiments" / f"{name}.yaml").read_text())
    variable, files = FILES[name]
    for file in files:
        (tmp_path / file).touch()
    arguments = "-n", "--config", f"experiments=[{name}]", "device=cuda"
    status, output = checkout.snakemake(*arguments, **{variable: str(tmp_path)})
    assert status == 0, output
    wanted = dict.fromkeys(("prepare", "tables", "contrasts", "figures", "report", "all"), 1)
    assert jobs_of(output) == {**wanted, "train": blocks, "total": blocks + 6}
    (tmp_path / files[-1]).unlink()
    status, output = checkout.snakemake(*arguments, **{variable: str(tmp_path)})
    assert status == 1
    assert files[-1] in output


@pytest.mark.parametrize("name", FILES)
def test_header_says_hardware_time_and_where_the_data_come_from(name):
    header = (ROOT / "experiments" / f"{name}.yaml").read_text().partition("\nname:")[0]
    for word in ("Hardware:", "Time:", "estimate, not a", FILES[name][0], "redistribution", "memory"):
        assert word in header


def test_table_rows_of_kaggle_fit_any_vocabulary():
    """A category with a row of its own is in 10 of the 39,291,957 training rows: a table has room for them all, or for as many
    as the file has."""
    dataset = load_experiment(ROOT / "experiments" / "criteo_kaggle.yaml").dataset
    assert max(dataset.rows_of_tables) == 39_291_957 // dataset.categories.min_count + 2
    assert sum(rows == max(dataset.rows_of_tables) for rows in dataset.rows_of_tables) == 4
