"""Command line: one sub-command per pipeline step, each usable without Snakemake."""

import argparse
import dataclasses
import json
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from meshrec.data.sequences.options import add_options as add_sequence_options
from meshrec.experiment import Experiment, ExperimentError, blocks, load_experiment
from meshrec.experiment.listing import block_json, cells_table

CHECKOUT = Path(__file__).resolve().parents[2]
logger = logging.getLogger("meshrec.cli")  # __name__ is __main__ under `python -m`


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one sub-command. Returns the exit status: 0, or 2 where the input is wrong and the message says how."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    # the libraries' own chatter starts at WARNING: fbgemm alone says fourteen times that it is loaded
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("meshrec").setLevel(logging.DEBUG if options.verbose else logging.INFO)
    try:
        command: Callable[[argparse.Namespace], None] = options.run
        command(options)
    except (ValueError, OSError, RuntimeError) as error:
        message = _clear_message(error)
        if message is None:
            raise
        logger.debug("traceback", exc_info=error)
        print(f"meshrec: {message}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("meshrec: interrupted; what is finished is kept, and the same command goes on from there", file=sys.stderr)
        return 130
    return 0


def _interrupt(*_: object) -> None:
    """SIGTERM as an interrupt: what is open is closed and temporary files go."""
    raise KeyboardInterrupt


def _clear_message(error: Exception) -> str | None:
    """Message of an error that was written for the user; None for a surprise, whose traceback is needed."""
    if type(error).__module__.startswith("meshrec."):
        return str(error)
    if isinstance(error, OSError) and error.errno is not None:
        return f"{error.filename or 'writing'}: {error.strerror}"
    return None


def find_experiment(name: str) -> Path:
    """File of an experiment given by path, or by name from `experiments/` here or in the checkout.

    Raises:
        ExperimentError: there is none; the message lists those that there are.
    """
    if name.endswith((".yaml", ".yml")) or "/" in name:
        return Path(name)
    folders = [Path("experiments"), CHECKOUT / "experiments"]
    for folder in folders:
        if (folder / f"{name}.yaml").is_file():
            return folder / f"{name}.yaml"
    known = sorted({path.stem for folder in folders for path in folder.glob("*.yaml")})
    raise ExperimentError(f"{name}: no experiment of this name; there are {', '.join(known)}. A path to a YAML file works too")


def _load(options: argparse.Namespace) -> Experiment:
    return load_experiment(find_experiment(options.experiment))


# --- what is installed, what would run ---------------------------------------------------------------------------------


def check(_: argparse.Namespace) -> None:
    """Print the torch/fbgemm/CUDA triple, or refuse it."""
    from meshrec.measure.versions import check_kernels, check_versions, cuda_in_use

    versions = check_versions()
    check_kernels(versions)
    print(f"torch {versions.torch} · fbgemm {versions.fbgemm} ({versions.fbgemm_distribution}) · CUDA {cuda_in_use()}")


def cells(options: argparse.Namespace) -> None:
    """List blocks and their cells in the order in which they run."""
    experiment = _load(options)
    if options.json:
        print(json.dumps([block_json(block) for block in blocks(experiment)], indent=1))
    else:
        print(cells_table(experiment))


def doctor(options: argparse.Namespace) -> None:
    """Say what this machine has, what an experiment needs of it, and what won't fit."""
    from meshrec.data.fetch.sources import load_sources
    from meshrec.doctor.finding import findings_text
    from meshrec.doctor.fits import Places
    from meshrec.doctor.report import examine, refuse_failed

    experiment = None if options.experiment is None else _load(options)
    findings = examine(experiment, list(load_sources().values()), Places(options.data, options.results))
    print(findings_text(findings), flush=True)
    refuse_failed(findings)


# --- data on this machine ----------------------------------------------------------------------------------------------


def fetch(options: argparse.Namespace) -> None:
    """Download a public data set and verify it; without a name, list what there is."""
    from meshrec.data.fetch.fetch import Fetcher
    from meshrec.data.fetch.listing import listing
    from meshrec.data.fetch.sources import load_sources, source_named

    sources = load_sources(options.sources)
    if options.name is None:
        print(listing(sources))
        return
    fetcher = Fetcher(options.data, options.mirror, options.offline, options.accept_licence)
    for path in fetcher.fetch(source_named(options.name, sources), options.file):
        print(path)


def describe(options: argparse.Namespace) -> None:
    """Print what a prepared store holds, and draw it: frequencies, missing fields, integers; of sequences, items and users."""
    from meshrec.publish.describe import write_any_description

    out = options.out or CHECKOUT / "data" / "described" / options.store.resolve().name
    print(write_any_description(options.store, out))
    print(f"\npictures: {out}")


# --- the pipeline's steps ----------------------------------------------------------------------------------------------


def prepare(options: argparse.Namespace) -> None:
    """Make the experiment's columnar store."""
    from meshrec.data.prepare import prepare as prepare_store

    prepare_store(_load(options).dataset, options.out, options.workers)
    print(options.out)


def prepare_sequences(options: argparse.Namespace) -> None:
    """Make a store of users' items in the order of time from a text file."""
    from meshrec.data.sequences.options import dataset_of
    from meshrec.data.sequences.prepare import prepare_sequences as prepare_store

    prepare_store(dataset_of(options), options.out)
    print(options.out)


def plan(options: argparse.Namespace) -> None:
    """Show which rank of a sharding group holds what, as the runs will have it."""
    from meshrec.embeddings.plan import PlanError
    from meshrec.train.plans import cell_plans

    plans = cell_plans(_load(options), options.layout, options.ranks, options.store)
    print("\n\n\n".join(found.text() for found in plans))
    if options.picture is None:
        return
    if len(plans) > 1:
        raise PlanError(f"{options.picture}: is for one of these {len(plans)} plans; choose it by --layout and --ranks")
    from meshrec.publish.plan_picture import write_plan_picture

    write_plan_picture(plans[0].plan, plans[0].loads, plans[0].frequencies is not None, options.picture)


def train(options: argparse.Namespace) -> None:
    """Run one block: all cells of one seed at one rank count."""
    from meshrec.measure.versions import check_versions

    check_versions()
    from meshrec.train.block import train_block

    level = logging.getLogger("meshrec").level
    failed = train_block(_load(options), options.ranks, options.seed, options.store, options.out, level)
    if failed:  # a failed cell is a result: its record holds the reason, and the report shows it
        logger.warning("%d cells of block %d-%d failed; their records say why", failed, options.ranks, options.seed)
    print(options.out / "block.json")


def evaluate(options: argparse.Namespace) -> None:
    """Print the metrics of a checkpoint, loaded into the mesh of any cell and rank count."""
    from meshrec.measure.versions import check_versions

    check_versions()
    from meshrec.train.reload import evaluate_checkpoint

    found = evaluate_checkpoint(_load(options), options.checkpoint, options.ranks, options.cell, options.store)
    print(json.dumps(dataclasses.asdict(found), indent=1))


def tables(options: argparse.Namespace) -> None:
    """Turn run records into tidy tables."""
    from meshrec.publish.tables import write_tables

    write_tables(_load(options), options.results)
    print(options.results)


def contrasts(options: argparse.Namespace) -> None:
    """Estimate the paired contrasts."""
    from meshrec.publish.contrasts import write_contrasts

    write_contrasts(_load(options), options.results)
    print(options.results / "contrasts.csv")


def figures(options: argparse.Namespace) -> None:
    """Draw the figures."""
    from meshrec.publish.figures import write_figures

    out = options.out or options.results / "figures"
    write_figures(_load(options), options.results, out)
    print(out)


def report(options: argparse.Namespace) -> None:
    """Write the self-contained report."""
    from meshrec.publish.report import write_report

    print(write_report(_load(options), options.results))


def _folder(text: str) -> Path:
    """A folder that exists: a misspelt one would pass for an experiment without any run."""
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no folder")
    return Path(text)


def _picture(text: str) -> Path:
    if Path(text).suffix not in (".png", ".pdf", ".svg"):
        raise argparse.ArgumentTypeError(f"{text} ends in {Path(text).suffix or 'nothing'}, want .png, .pdf or .svg")
    return Path(text)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no positive number")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="meshrec", description=__doc__)
    parser.add_argument("-v", "--verbose", action="store_true", help="log at DEBUG")
    steps = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(run: Callable[[argparse.Namespace], None], *, experiment: bool = True) -> argparse.ArgumentParser:
        step = steps.add_parser(run.__name__.replace("_", "-"), help=run.__doc__, description=run.__doc__)
        step.add_argument("-v", "--verbose", action="store_true", default=argparse.SUPPRESS, help="log at DEBUG")
        step.set_defaults(run=run)
        if experiment:
            step.add_argument("experiment", metavar="EXPERIMENT", help="name in experiments/, or path of a YAML file")
        return step

    add(check, experiment=False)
    add(cells).add_argument("--json", action="store_true", help="all settings, for machines")
    step = add(doctor, experiment=False)
    step.add_argument("experiment", metavar="EXPERIMENT", nargs="?", help="the machine alone is looked at when left out")
    step.add_argument("--data", type=Path, default=CHECKOUT / "data", help="folder of downloads and stores")
    step.add_argument("--results", type=Path, default=CHECKOUT / "results", help="folder of results")
    step = add(fetch, experiment=False)
    step.add_argument("name", metavar="NAME", nargs="?", help="data set in the table; all are listed when left out")
    step.add_argument("--accept-licence", action="store_true", help="say that you accept the data set's terms")
    step.add_argument("--file", action="append", help="only this file of the data set; may be repeated")
    step.add_argument("--data", type=Path, default=CHECKOUT / "data", help="folder whose raw/NAME receives the files")
    step.add_argument("--mirror", metavar="FOLDER|URL", help="holds NAME/FILE; asked first")
    step.add_argument("--offline", action="store_true", help="ask nothing but the mirror")
    step.add_argument("--sources", type=Path, default=CHECKOUT / "data" / "sources.toml", help="another table of data sets")
    add_sequence_options(add(prepare_sequences, experiment=False))
    step = add(prepare)
    step.add_argument("--out", type=Path, required=True, help="folder of the store")
    step.add_argument("--workers", type=_positive, help="threads; all cores when left out. They don't change the result")
    step = add(describe, experiment=False)
    step.add_argument("store", metavar="STORE", type=_folder, help="folder that `meshrec prepare` wrote")
    step.add_argument("--out", type=Path, help="folder of the pictures; data/described/STORE when left out")
    step = add(plan)
    step.add_argument("--layout", help="one layout; all when left out")
    step.add_argument("--ranks", type=_positive, help="one rank count; all when left out")
    step.add_argument("--store", type=Path, help="folder that `meshrec prepare` wrote: measured lookups, which `planned` needs")
    step.add_argument("--picture", type=_picture, help="also draw the plan, if it is only one: .png, .pdf or .svg")
    step = add(train)
    step.add_argument("--ranks", type=int, required=True)
    step.add_argument("--seed", type=int, required=True)
    step.add_argument("--store", type=Path, required=True, help="folder that `meshrec prepare` wrote")
    step.add_argument("--out", type=Path, required=True, help="folder of the block's records")
    step = add(evaluate)
    step.add_argument("--checkpoint", type=_folder, required=True, help="folder step-N that a run left behind")
    step.add_argument("--ranks", type=_positive, required=True, help="rank count of the mesh to load into")
    step.add_argument("--cell", required=True, help="layout.optimizer.scaling")
    step.add_argument("--store", type=_folder, required=True, help="folder that `meshrec prepare` wrote")
    for run in (tables, contrasts, figures, report):
        add(run).add_argument("--results", type=_folder, required=True, help="results/EXPERIMENT, with blocks/ in it")
    steps.choices["figures"].add_argument("--out", type=Path, help="folder of the figures; RESULTS/figures when left out")
    return parser


if __name__ == "__main__":
    sys.exit(main())
