"""Blocks and cells in the order in which they run, for people and for machines."""

from typing import Any

from meshrec.experiment.cells import Block, Cell, blocks
from meshrec.experiment.schema import Experiment


def cells_table(experiment: Experiment) -> str:
    """Blocks and cells as aligned text."""
    listed = blocks(experiment)
    head = ("block", "run", "layout", "mesh M×N", "optimizer", "lr", "c", "batch", "scaling")
    rows = [head, *(row for block in listed for row in _block_rows(block))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    runs = sum(len(block.cells) for block in listed)
    return "\n".join([f"{experiment.name}: {len(listed)} blocks (ranks-seed), {runs} runs", "", *lines])


def _block_rows(block: Block) -> list[tuple[str, ...]]:
    return [
        (
            block.name,
            str(order),
            cell.layout,
            f"{cell.layout_level.replicas}×{cell.shards}",
            cell.optimizer,
            f"{cell.optimizer_level.lr:g}",
            _moment_scale(cell),
            str(cell.global_batch),
            cell.scaling,
        )
        for order, cell in enumerate(block.cells, start=1)
    ]


def _moment_scale(cell: Cell) -> str:
    scale = getattr(cell.optimizer_level, "moment_scale", None)
    return "–" if scale is None else f"{scale:g}"


def block_json(block: Block) -> dict[str, Any]:
    """Cells of a block with all their settings, for machines."""
    listed = [
        {"cell": cell.name, "settings_hash": cell.settings_hash, "settings": cell.settings, "shards": cell.shards}
        for cell in block.cells
    ]
    return {"block": block.name, "ranks": block.ranks, "seed": block.seed, "cells": listed}
