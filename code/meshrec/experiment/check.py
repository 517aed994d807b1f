"""Rules that span several keys of an experiment file. Each problem is a key path and a sentence."""

import json
from collections.abc import Iterator

from meshrec.experiment.cells import cells_of, samples_per_run
from meshrec.experiment.combinations import impossible_combinations
from meshrec.experiment.schema import Experiment, SyntheticDataset
from meshrec.experiment.shardings import impossible_shardings

Problem = tuple[tuple[str | int, ...], str]


def problems(experiment: Experiment, file_stem: str) -> Iterator[Problem]:
    """Everything that makes the experiment impossible to run or to analyse."""
    if experiment.name != file_stem:
        yield ("name",), f"found {experiment.name!r}, want {file_stem!r}, the file's name: results are filed under it"
    yield from _meshes(experiment)
    yield from _empty_blocks(experiment)
    yield from _batches(experiment)
    unknown = [*_unknown_levels(experiment), *_unknown_comparisons(experiment)]
    yield from unknown
    if not unknown:
        yield from impossible_combinations(experiment)
        yield from _duplicate_cells(experiment)


def _meshes(experiment: Experiment) -> Iterator[Problem]:
    for label, layout in experiment.layouts.items():
        for index, ranks in enumerate(layout.ranks or []):
            if ranks not in experiment.ranks:
                key = ("layouts", label, "ranks", index)
                yield key, f"found {ranks}, want one of the experiment's ranks {experiment.ranks}"
        for ranks in filter(layout.at, experiment.ranks):
            if ranks % layout.replicas:
                yield (
                    ("layouts", label, "replicas"),
                    f"{layout.replicas} replicas don't divide {ranks} ranks, so there is no mesh of them; choose a divisor "
                    f"or list the rank counts that the layout is for under layouts.{label}.ranks",
                )
            else:
                yield from impossible_shardings(experiment, label, ranks // layout.replicas)


def _empty_blocks(experiment: Experiment) -> Iterator[Problem]:
    for index, ranks in enumerate(experiment.ranks):
        if not any(cells_of(experiment, ranks, seed=0)):
            yield ("ranks", index), f"no layout is run at {ranks} rank{'s'[: ranks > 1]}; remove it or give it a layout"


def _batches(experiment: Experiment) -> Iterator[Problem]:
    for label, scaling in experiment.scaling.items():
        for ranks in experiment.ranks:
            batch = scaling.global_batch_at(ranks)
            if batch % ranks:
                yield ("scaling", label, "global_batch"), f"{batch} samples can't be divided evenly over {ranks} ranks"
    if isinstance(experiment.dataset, SyntheticDataset):
        try:
            samples_per_run(experiment, experiment.dataset.train_samples)
        except ValueError as error:
            yield ("dataset", "train_samples"), str(error)


def _unknown_levels(experiment: Experiment) -> Iterator[Problem]:
    known = {"layouts": list(experiment.layouts), "optimizers": list(experiment.optimizers)}
    for label, optimizer in experiment.optimizers.items():
        for index, layout in enumerate(optimizer.layouts or []):
            if layout not in known["layouts"]:
                yield ("optimizers", label, "layouts", index), f"found {layout!r}, want one of {known['layouts']}"
    for factor, levels in (
        ("layouts", experiment.analysis.factorial.layouts),
        ("optimizers", experiment.analysis.factorial.optimizers),
    ):
        for index, level in enumerate(levels):
            if level not in known[factor]:
                yield ("analysis", "factorial", factor, index), f"found {level!r}, want one of {known[factor]}"


def _unknown_comparisons(experiment: Experiment) -> Iterator[Problem]:
    treatments = {f"{cell.layout}.{cell.optimizer}" for ranks in experiment.ranks for cell in cells_of(experiment, ranks, 0)}
    for name, pair in experiment.analysis.pairs.items():
        for index, treatment in enumerate(pair):
            if treatment not in treatments:
                yield (
                    ("analysis", "pairs", name, index),
                    f"found {treatment!r}, want a layout.optimizer that is run: {sorted(treatments)}",
                )
    names = ["layout", "optimizer", "interaction", *experiment.analysis.pairs]
    for index, entry in enumerate(experiment.analysis.confirmatory):
        if entry.comparison not in names:
            yield ("analysis", "confirmatory", index, "comparison"), f"found {entry.comparison!r}, want one of {names}"


def _duplicate_cells(experiment: Experiment) -> Iterator[Problem]:
    """Two labels for the same computation would be analysed as two treatments."""
    for ranks in experiment.ranks:
        seen: dict[str, str] = {}
        for cell in cells_of(experiment, ranks, experiment.seeds[0]):
            settings = json.dumps(cell.settings, sort_keys=True)
            if settings in seen:
                yield (
                    ("layouts", cell.layout),
                    f"at {ranks} ranks cells {seen[settings]} and {cell.name} are duplicates: the same run twice",
                )
                return
            seen[settings] = cell.name
