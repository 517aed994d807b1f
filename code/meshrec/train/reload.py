"""Evaluates a checkpoint in the mesh of any cell of its experiment."""

import logging
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from meshrec.data.store import open_store
from meshrec.experiment.cells import Cell, cells_of
from meshrec.experiment.schema import Experiment
from meshrec.measure.quality import Quality
from meshrec.mesh.device import device_of
from meshrec.mesh.groups import MeshPool
from meshrec.mesh.launch import launch
from meshrec.train.checkpoint import CheckpointError, load_model, read_manifest
from meshrec.train.evaluate import evaluate
from meshrec.train.setup import processes
from meshrec.train.trainer import Trainer
from meshrec.train.worker import plan_of

LAUNCH_TIMEOUT, COLLECTIVE_TIMEOUT = 3600.0, 300.0
"""Seconds."""


def evaluate_checkpoint(experiment: Experiment, checkpoint: Path, ranks: int, cell: str, store: Path) -> Quality:
    """Metrics of a checkpoint's model, loaded into the mesh and sharding plan of a cell at a rank count.

    Args:
        experiment: has the cell.
        checkpoint: a folder `step-N`.
        ranks: T of the mesh to load into.
        cell: `layout.optimizer.scaling`; its seed is the checkpoint's.
        store: folder of the prepared data.

    Raises:
        CheckpointError: damaged, of another model, or no such cell.
    """
    manifest = read_manifest(checkpoint)
    seed, found_data = int(manifest.settings["seed"]), open_store(store).manifest.data_hash
    if found_data != manifest.data_hash:
        raise CheckpointError(f"{store}: holds data {found_data}, want {manifest.data_hash}, on which {checkpoint} was trained")
    known = {found.name: found for found in cells_of(experiment, ranks, seed)}
    if cell not in known:
        raise CheckpointError(f"{experiment.name} has no cell {cell!r} at {ranks} ranks; it has {sorted(known)}")
    arguments = known[cell], checkpoint.absolute(), store.absolute()
    found: list[Quality] = launch(
        _on_rank, processes(known[cell]), *arguments, timeout=LAUNCH_TIMEOUT, collective_timeout=COLLECTIVE_TIMEOUT
    )
    return found[0]


def _on_rank(cell: Cell, checkpoint: Path, store: Path) -> Quality:
    logging.basicConfig(level=logging.WARNING, force=True)  # fbgemm prints all arguments of every table it makes
    data = open_store(store)
    meshes = MeshPool(device_of(dist.get_rank(), dist.get_world_size()), timedelta(seconds=COLLECTIVE_TIMEOUT))
    trainer = Trainer(cell, meshes, plan_of(cell, data))
    load_model(checkpoint, trainer)
    return evaluate(trainer, data.evaluation, cell.experiment.training.eval_batch)
