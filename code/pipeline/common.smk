# Lookups: experiments, their data sets and blocks. Files are relative to the working directory, code to the Snakefile.
import os
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

CODE = Path(workflow.basedir) / "code"
sys.path.insert(0, str(CODE))

from meshrec.data.prepare import available
from meshrec.experiment import (
    Block,
    ExperimentError,
    blocks,
    dataset_id,
    load_experiment,
)

# Jobs use the Python that runs Snakemake (one of `--sdm conda` goes before it) and this checkout's code.
os.environ.update(
    PATH=os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    )
)
shell.prefix(f"set -euo pipefail; export PYTHONPATH={shlex.quote(str(CODE))}; ")


def load_experiments():
    """Every experiment by name; only the wanted ones are read, so that a draft beside them does no harm."""
    wanted = config.get("experiments")
    known = sorted(path.stem for path in Path("experiments").glob("*.yaml"))
    for name in wanted or []:
        if name not in known:
            raise WorkflowError(
                f"experiments/{name}.yaml doesn't exist; there are {', '.join(known) or 'none'}"
            )
    try:
        return {
            name: load_experiment(f"experiments/{name}.yaml")
            for name in wanted or known
        }
    except ExperimentError as error:
        raise WorkflowError(str(error)) from None


def selected_experiments():
    """Experiments to report on, from `--config experiments=[…]`, else all whose data can be had here."""
    selected = []
    for name, experiment in EXPERIMENTS.items():
        reason = available(experiment.dataset)
        if reason is None:
            selected.append(name)
        elif config.get("experiments"):
            raise WorkflowError(f"experiment {name} can't run here: {reason}")
        else:
            logger.warning(f"experiment {name} is left out: {reason}")
    return selected


def files_of_blocks(name):
    """Last file that each block of an experiment writes."""
    return [
        f"results/{name}/blocks/{block.name}/block.json"
        for block in blocks(EXPERIMENTS[name])
    ]


def everything():
    """Reports, and the blocks too: Snakemake doesn't miss a lost file while what was made from it is there."""
    return [
        path
        for name in selected_experiments()
        for path in [*files_of_blocks(name), f"results/{name}/report.html"]
    ]


def store_of(wildcards):
    """Prepared columns of an experiment."""
    return f"data/prepared/{dataset_id(EXPERIMENTS[wildcards.experiment].dataset)}"


def source_of(wildcards):
    """Files that a data set is made from; none for generated data."""
    paths = getattr(EXPERIMENTS[DATASETS[wildcards.dataset]].dataset, "path", [])
    return [
        str(Path(os.path.expandvars(path)).expanduser())
        for path in ([paths] if isinstance(paths, str) else paths)
    ]


def memory_mb(wildcards):
    """Host memory of a block: a process and its libraries for each rank, and the widest layout's tables twice over."""
    experiment = EXPERIMENTS[wildcards.experiment]
    rows, dims = experiment.dataset.rows_of_tables, experiment.model.dims_of_tables
    cells = Block(experiment, int(wildcards.ranks), int(wildcards.seed)).cells
    replicas = max(cell.layout_level.replicas for cell in cells)
    numbers = sum(count * (dim + 1) for count, dim in zip(rows, dims))
    table_bytes = numbers * 4 * replicas
    return 1500 * int(wildcards.ranks) + 2 * table_bytes // 10**6


def gpus(wildcards):
    """One device a rank with `--config device=cuda`, else none."""
    return int(wildcards.ranks) if config.get("device") == "cuda" else 0


EXPERIMENTS = load_experiments()
# any experiment that uses the data set will do to prepare it: the id is a hash of all its settings
DATASETS = {
    dataset_id(experiment.dataset): name for name, experiment in EXPERIMENTS.items()
}
