"""What the records say about the circumstances of their runs: the analysis they were made under, the cores they had."""

import pandas as pd
import yaml

from meshrec.experiment import Experiment, blocks


def changed_runs(experiment: Experiment, runs: pd.DataFrame) -> tuple[int, int]:
    """Finished runs that were made under another analysis section than the experiment's current one, and all finished runs."""
    finished = runs[runs["status"] == "ok"]
    current = blocks(experiment)[0].cells[0].analysis_hash
    return int((finished["analysis_hash"] != current).sum()), len(finished)


def analysis_text(experiment: Experiment, runs: pd.DataFrame) -> str:
    """What is known about when the margins and comparisons were written down."""
    changed, finished = changed_runs(experiment, runs)
    if not finished:
        return "No run has finished yet."
    if changed:
        return (
            f"The analysis section of the experiment file (comparisons, margins, confirmatory family) was changed after "
            f"{changed} of {finished} finished runs were made; no comparison is called confirmatory."
        )
    return (
        f"The analysis section of the experiment file (comparisons, margins, confirmatory family) is unchanged since the first "
        f"run: all {finished} finished runs recorded the same."
    )


def crowded(runs: pd.DataFrame) -> dict[int, int]:
    """Rank counts at which processes had to share cores → cores there were, the fewest of any run.

    Runs on other devices than the CPU are not counted: their ranks compute elsewhere.
    """
    shared = runs[(runs["status"] == "ok") & (runs["execution"] == "ranks") & (runs["device"] == "cpu")]
    shared = shared[(shared["cores"] < shared["ranks"]).fillna(False)]
    fewest = shared.astype({"ranks": "int64", "cores": "int64"}).groupby("ranks")["cores"].min()
    return {int(str(ranks)): int(cores) for ranks, cores in fewest.items()}


def crowd_text(ranks: int, cores: int) -> str:
    """Why speeds at a rank count are to be read with care."""
    return (
        f"{ranks} ranks shared {cores} core{'s' * (cores != 1)}: "
        "speeds there measure the operating system's scheduler as much as the layout"
    )


def listing(experiment: Experiment) -> str:
    """The experiment as YAML that `load_experiment` reads back, every default spelled out."""
    return yaml.safe_dump(experiment.model_dump(mode="json", exclude_none=True), sort_keys=False, allow_unicode=True, width=120)
