"""Shardings that no data are needed to refuse: the planner would, on every rank, once the ranks are there."""

from collections.abc import Iterator, Sequence
from itertools import chain

from meshrec.experiment.factors import Layout
from meshrec.experiment.schema import Experiment

Problem = tuple[tuple[str | int, ...], str]


def impossible_shardings(experiment: Experiment, label: str, shards: int) -> Iterator[Problem]:
    """What a layout can't do over a group of so many ranks: each of them has to hold rows."""
    layout = experiment.layouts[label]
    rows, dims = experiment.dataset.rows_of_tables, experiment.model.dims_of_tables
    kinds = [layout.tables.get(table, layout.sharding) for table in range(len(rows))]
    split = [_split_problem(*of_table, shards) for of_table in zip(kinds, rows, dims, strict=True)]
    of_all = next((problem for table, problem in enumerate(split) if problem and table not in layout.tables), None)
    if of_all:
        yield ("layouts", label, "sharding"), of_all
    for table, problem in enumerate(split):
        if problem and table in layout.tables:
            yield ("layouts", label, "tables", str(table)), problem
    yield from _too_few(label, kinds, rows, shards)
    yield from _too_large(layout, label, kinds, [4 * a * b for a, b in zip(rows, dims, strict=True)], shards)


def _split_problem(kind: str, rows: int, dim: int, shards: int) -> str | None:
    if kind == "row-wise" and rows < shards:
        return f"a table's {rows} rows can't be split over the {shards} ranks of a group; use table-wise or more replicas"
    if kind == "column-wise" and dim % (4 * shards):
        return (
            f"a table's {dim} columns can't be split over the {shards} ranks of a group into equal shards of a multiple of 4 "
            "columns; use table-wise, row-wise or more replicas"
        )
    return None


def _too_few(label: str, kinds: Sequence[str], rows: list[int], shards: int) -> Iterator[Problem]:
    """Whole or planned tables that are too few to go round, with no other table to keep a rank busy."""
    key = ("layouts", label, "sharding")
    if {"row-wise", "column-wise"} & set(kinds):
        return
    whole = kinds.count("table-wise")
    planned = [count for kind, count in zip(kinds, rows, strict=True) if kind == "planned"]
    if not planned and 0 < whole < shards:
        yield key, f"{whole} tables can't be split over the {shards} ranks of a group; use row-wise or more replicas"
    if planned and whole + sum(planned) < shards:
        yield key, f"{sum(planned)} rows of planned tables can't be split over the {shards} ranks of a group; use more replicas"


def _too_large(layout: Layout, label: str, kinds: Sequence[str], sizes: list[int], shards: int) -> Iterator[Problem]:
    """Weights that no rank, or not all ranks together, can hold. Optimizer state comes on top."""
    limit, key = layout.memory_limit, ("layouts", label, "memory_limit")
    if limit is None:
        return
    everywhere = sum(size for kind, size in zip(kinds, sizes, strict=True) if kind == "replicated")
    least = everywhere + -(-(sum(sizes) - everywhere) // shards)
    whole = [everywhere + size for kind, size in zip(kinds, sizes, strict=True) if kind == "table-wise"]
    if (wanted := max(chain([least], whole))) > limit:
        yield key, f"found {limit} bytes, want at least {wanted}: so much do a rank's weights alone take over {shards} ranks"
