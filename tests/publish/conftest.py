"""One planted experiment, published to the end, for all tests."""

from pathlib import Path

import pytest

from meshrec.experiment import Experiment
from meshrec.publish.contrasts import write_contrasts
from meshrec.publish.figures import write_figures
from meshrec.publish.report import write_report
from meshrec.publish.tables import write_tables
from publish.planted import Planted, RunRecord, failed, smoke


def _one_failed_one_missing(record: RunRecord) -> RunRecord | None:
    where = (record.ranks, record.seed, record.cell)
    if where == (4, 1, "2d.plain.strong"):
        return failed(record)
    return None if where == (2, 2, "2d.scaled.strong") else record


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Experiment, Path]:
    """Experiment and results folder, published to the end: 6 seeds, planted effects, a failed run and a missing one."""
    experiment, results = smoke(seeds=6), tmp_path_factory.mktemp("published") / "smoke"
    planted = Planted(ne_optimizer=-0.012, log_speed_layout=0.3, ne_noise=0.001, change=_one_failed_one_missing)
    planted.write(experiment, results)
    write_tables(experiment, results)
    write_contrasts(experiment, results)
    write_figures(experiment, results, results / "figures")
    write_report(experiment, results)
    return experiment, results
