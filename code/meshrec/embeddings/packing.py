"""Rows with their optimizer state as one flat buffer, so that replicas average all of it in one collective."""

from collections.abc import Iterable
from math import prod

import torch

from meshrec.embeddings.local import RowBlock


def pack(blocks: Iterable[RowBlock], with_states: bool) -> torch.Tensor:
    """Copy rows out: [numbers] float32, of each block the weights and then each state."""
    blocks = list(blocks)
    if not blocks:  # all tables are replicated
        return torch.empty(0)
    buffer = torch.empty(sum(numbers(block, with_states) for block in blocks), device=blocks[0].rows.device)
    start = 0
    for block in blocks:
        for live in _live(block, with_states):
            shape = (block.rows.numel(), *live.shape[1:])
            torch.index_select(live, 0, block.rows, out=buffer[start : start + prod(shape)].view(shape))
            start += prod(shape)
    return buffer


def unpack(blocks: Iterable[RowBlock], with_states: bool, buffer: torch.Tensor) -> None:
    """Copy back what `pack` has copied out."""
    start = 0
    for block in blocks:
        for live in _live(block, with_states):
            shape = (block.rows.numel(), *live.shape[1:])
            live.index_copy_(0, block.rows, buffer[start : start + prod(shape)].view(shape))
            start += prod(shape)


def numbers(block: RowBlock, with_states: bool) -> int:
    """How many float32 numbers a block's rows are."""
    return sum(block.rows.numel() * prod(live.shape[1:]) for live in _live(block, with_states))


def _live(block: RowBlock, with_states: bool) -> list[torch.Tensor]:
    states = averaged_states(block.tables.states()) if with_states else []
    return [block.tables.weights(), *states]


def averaged_states(states: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """The states that an average covers: all but lagging moments, which follow from it."""
    return [state for name, state in states.items() if name != "lagged_moments"]
