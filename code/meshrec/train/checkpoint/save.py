"""Writes a checkpoint; collective over all ranks."""

from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_saver import save as save_state

from meshrec.train.checkpoint.files import Manifest, begin, complete, sha256
from meshrec.train.checkpoint.progress import Progress
from meshrec.train.checkpoint.shards import dense_tensors, table_tensors
from meshrec.train.trainer import Trainer


def save(folder: Path, trainer: Trainer, progress: Progress, data_hash: str) -> Path:
    """Write the state after `progress.done` steps, of which no batch is under way, in place of the cell's earlier checkpoints.

    Returns:
        The complete checkpoint.
    """
    rank = dist.get_rank()
    partial = _agree(begin(folder, progress.done) if rank == 0 else None)
    trainer.embeddings.settle()
    with trainer.embeddings.whole_shards():
        save_state(model_tensors(trainer, progress.done), checkpoint_id=partial)
    progress.write(partial / f"rank-{rank}.npz", trainer)
    files: list[dict[str, str]] = [{}] * dist.get_world_size()
    dist.all_gather_object(files, {path.name: sha256(path) for path in _own_files(partial, rank)})
    return _agree(complete(partial, _manifest(trainer, progress, data_hash, files)) if rank == 0 else None)


def model_tensors(trainer: Trainer, step: int) -> dict[str, Any]:
    """Live tensors of the model after a step, by name. Replicas that differ have names of their own; of equal ones one does."""
    twins = range(len(trainer.embeddings.twins)) if replicas_differ(trainer, step) else [0]
    tensors: dict[str, Any] = dict(dense_tensors(trainer.dense))
    for twin in twins:
        tensors |= twin_tensors(trainer, step, twin)
    return tensors


def twin_tensors(trainer: Trainer, step: int, twin: int) -> dict[str, Any]:
    """Live tensors of a local twin's tables after a step, by name."""
    prefix = f"replica.{trainer.mesh.replica + twin}." if replicas_differ(trainer, step) else ""
    return {prefix + name: tensor for name, tensor in table_tensors(trainer.embeddings, twin).items()}


def replicas_differ(trainer: Trainer, step: int) -> bool:
    """Whether the M replicas are different models after a step."""
    layout = trainer.cell.layout_level
    if layout.replicas == 1 or layout.sync == "gradients":
        return False
    return step % layout.sync_every != 0 or layout.sync_moments == "local"


def _own_files(partial: Path, rank: int) -> list[Path]:
    """Files that this rank wrote; the first rank also has what belongs to all."""
    own = [*partial.glob(f"__{rank}_*"), partial / f"rank-{rank}.npz"]
    return [*own, partial / ".metadata"] if rank == 0 else own


def _manifest(trainer: Trainer, progress: Progress, data_hash: str, files: list[dict[str, str]]) -> Manifest:
    return Manifest(
        step=progress.done,
        settings=trainer.cell.settings,
        data_hash=data_hash,
        plan_hash=trainer.plan.hash,
        replicas_differ=replicas_differ(trainer, progress.done),
        kernel_steps=trainer.embeddings.kernels()[0].steps,
        files={name: digest for of_rank in files for name, digest in of_rank.items()},
    )


def _agree(path: Path | None) -> Path:
    """The first rank's path on all ranks, once the first rank has made it."""
    paths = [path]
    dist.broadcast_object_list(paths, src=0)
    assert paths[0] is not None
    return paths[0]
