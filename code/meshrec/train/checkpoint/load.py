"""Reads a checkpoint: to go on with the same run, or into another mesh; collective over all ranks."""

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_loader import load as load_state

from meshrec.train.checkpoint.files import CheckpointError, Manifest, damaged_files, read_manifest
from meshrec.train.checkpoint.progress import Progress
from meshrec.train.checkpoint.save import model_tensors, twin_tensors
from meshrec.train.checkpoint.shards import dense_tensors, table_tensors
from meshrec.train.trainer import Trainer

OF_THE_MESH = ("ranks", "global_batch", "batch_period", "layout", "training")
"""Settings that may change when a model is loaded into another mesh: how it goes on, not what it is."""


def resume(path: Path, trainer: Trainer, progress: Progress, data_hash: str) -> None:
    """Take over a checkpoint of the very same run, to the bit.

    Raises:
        CheckpointError: damaged, or of other settings or data; every difference is named. On all ranks alike.
    """
    manifest = _checked(path)
    different = _differences(manifest.settings, trainer.cell.settings)
    if manifest.data_hash != data_hash:
        different.append(f"data: found {manifest.data_hash}, want {data_hash}")
    if manifest.plan_hash != trainer.plan.hash:
        different.append(f"sharding plan: found {manifest.plan_hash}, want {trainer.plan.hash}")
    _refuse(path, different)
    with trainer.embeddings.whole_shards():
        load_state(model_tensors(trainer, manifest.step), checkpoint_id=path)
        for twin in range(1, len(trainer.embeddings.twins)):
            load_state(twin_tensors(trainer, manifest.step, twin), checkpoint_id=path)
    progress.read(path / f"rank-{dist.get_rank()}.npz", trainer)
    trainer.embeddings.resume(manifest.step, manifest.kernel_steps)


def load_model(path: Path, trainer: Trainer) -> Manifest:
    """Load the model of a checkpoint into a trainer of any mesh and sharding plan; replicas that differ are averaged.

    Raises:
        CheckpointError: damaged, or another model, optimizer, seed or data set; every difference is named.
    """
    manifest = _checked(path)
    keep = {name: value for name, value in trainer.cell.settings.items() if name not in OF_THE_MESH}
    _refuse(path, _differences({name: manifest.settings.get(name) for name in keep}, keep))
    with trainer.embeddings.whole_shards():
        if manifest.replicas_differ:
            _read_mean(path, trainer, manifest.settings["layout"]["replicas"])
        else:
            for twin in range(len(trainer.embeddings.twins)):
                load_state(_of_the_model(trainer, twin), checkpoint_id=path)
        load_state(dict(dense_tensors(trainer.dense)), checkpoint_id=path)
        for tables in trainer.embeddings.kernels():
            tables.end_average(None)
    trainer.embeddings.resume(0, manifest.kernel_steps)
    return manifest


def _of_the_model(trainer: Trainer, twin: int) -> dict[str, Any]:
    """Tables of a local twin without what lags behind: that is how a mesh goes on, not what the model is."""
    tensors = table_tensors(trainer.embeddings, twin)
    return {name: tensor for name, tensor in tensors.items() if not name.endswith("lagged_moments")}


def _read_mean(path: Path, trainer: Trainer, replicas: int) -> None:
    """What the replicas' average would have been: each is read in turn and added up."""
    live = [_of_the_model(trainer, twin) for twin in range(len(trainer.embeddings.twins))]
    total: dict[str, list[torch.Tensor]] = {}
    for replica in range(replicas):
        load_state({f"replica.{replica}.{name}": tensor for name, tensor in live[0].items()}, checkpoint_id=path)
        for name, tensor in live[0].items():
            parts = [part.tensor.clone() for part in tensor.parts]
            total[name] = [a + b for a, b in zip(total[name], parts, strict=True)] if name in total else parts
    for twin in live:
        for name, tensor in twin.items():
            for part, summed in zip(tensor.parts, total[name], strict=True):
                part.tensor.copy_(summed / replicas)


def _checked(path: Path) -> Manifest:
    """The manifest of an undamaged checkpoint; each rank reads its share of the files."""
    manifest = read_manifest(path)
    found: list[list[str]] = [[]] * dist.get_world_size()
    dist.all_gather_object(found, damaged_files(path, manifest, dist.get_rank(), dist.get_world_size()))
    damaged = sorted(name for names in found for name in names)
    if damaged:
        raise CheckpointError(f"{path}: {', '.join(damaged)}: other bytes than were written; remove {path} to begin anew")
    return manifest


def _refuse(path: Path, different: list[str]) -> None:
    if different:
        raise CheckpointError(
            f"{path}: is of another run: {'; '.join(different)}. Restore the settings, or remove the checkpoint to begin anew"
        )


def _differences(found: Any, wanted: Any, key: str = "") -> list[str]:
    """Every field that differs, by its path."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        names = sorted(found.keys() | wanted.keys())
        return [line for name in names for line in _differences(found.get(name), wanted.get(name), f"{key}.{name}".strip("."))]
    return [] if found == wanted else [f"{key}: found {found!r}, want {wanted!r}"]
