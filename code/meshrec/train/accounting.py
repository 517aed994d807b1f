"""Bytes of a trainer's step: what it holds, measured on the live tensors, and what it sends, by formula."""

from dataclasses import replace

from meshrec.measure.wire import (
    StepShape,
    dense_bytes,
    exchange_bytes,
    replicated_average_bytes,
    replicated_bytes,
    sharded_storage_bytes,
    sync_bytes,
)
from meshrec.train.trainer import Trainer


def analytic_traffic(trainer: Trainer, steps: int) -> dict[str, float]:
    """Bytes that this rank sends in a step, by formula and collective, mean over so many steps."""
    shape, layout = trainer.shape(), trainer.cell.layout_level
    by_name = exchange_bytes(shape) | dense_bytes(shape)
    for size in trainer.embeddings.sync_sizes:
        for name, sent in sync_bytes(shape, layout.sync, size.listed, size.numbers).items():
            by_name[name] = by_name.get(name, 0.0) + sent / steps
    if trainer.embeddings.storage:
        by_name |= sharded_storage_bytes(shape, trainer.embeddings.storage.parts)
    if trainer.embeddings.whole and shape.ranks > 1:
        by_name |= _replicated(trainer, shape, steps)
    return by_name


def _replicated(trainer: Trainer, shape: StepShape, steps: int) -> dict[str, float]:
    layout = trainer.cell.layout_level
    exact = layout.replicas > 1 and layout.sync == "gradients"
    by_name = replicated_bytes(shape, exact)
    if layout.replicas > 1 and not exact:
        averages = -(-steps // layout.sync_every)  # the last one covers what is left over
        averaged = replace(shape, replicated_states=trainer.embeddings.sizes()[1].averaged)
        once = replicated_average_bytes(averaged, layout.sync_moments != "local")
        by_name |= {name: sent * averages / steps for name, sent in once.items()}
    return by_name


def component_bytes(trainer: Trainer) -> dict[str, int]:
    """Bytes of what this rank holds, from the live tensors."""
    embeddings = trainer.embeddings
    tables, states = embeddings.held_bytes()
    return {
        "tables": tables,
        "optimizer_state": states,
        "dense_parameters": sum(parameter.nbytes for parameter in trainer.model.parameters()),
        "dense_gradients": trainer.dense.gradient_bytes(),
        "dense_state": trainer.dense.state_bytes(),
        "embedding_activations": trainer.held.embedding_activations,
        "embedding_gradients": trainer.held.embedding_gradients,
        "exchange_buffers": embeddings.exchange.buffer_bytes,
        "sync_buffers": embeddings.sync_buffer_bytes,
    }
