"""What every rank of a launch does: the cells of a block, one after the other."""

import logging
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray

from meshrec.data.store import Store, open_store
from meshrec.embeddings.load import access_frequencies
from meshrec.embeddings.plan import Plan, PlanError
from meshrec.embeddings.planner import differences
from meshrec.experiment.cells import Cell
from meshrec.experiment.record import write_record
from meshrec.mesh.device import device_of
from meshrec.mesh.groups import MeshPool
from meshrec.train.checkpoint.files import folder_of, remove_all
from meshrec.train.evaluate import RunDiverged
from meshrec.train.run import failed_record, run_cell
from meshrec.train.setup import make_cell_plan

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Work:
    """What a launch is to do; the same on every rank."""

    cells: list[Cell]
    store: Path
    out: Path
    """Folder of the block's records."""
    environment: dict[str, Any]
    collective_timeout: float
    log_level: int


RUNNING = ".running"
"""File in the block's folder that names the cell being run: the launcher blames it if the ranks fail."""


def work_off(work: Work) -> None:
    """Run the cells and write their records. A cell that diverges is a failed record; any other error ends the launch."""
    rank = dist.get_rank()
    # the libraries' own chatter starts at WARNING: fbgemm alone prints all arguments of every table it makes
    logging.basicConfig(level=logging.WARNING, format=f"%(asctime)s rank {rank} %(levelname)s %(message)s", force=True)
    logging.getLogger("meshrec").setLevel(work.log_level if rank == 0 else logging.ERROR)
    store = open_store(work.store)
    meshes = MeshPool(device_of(rank, dist.get_world_size()), timedelta(seconds=work.collective_timeout))
    for cell in work.cells:
        if rank == 0:
            (work.out / RUNNING).write_text(cell.name)
        plan = plan_of(cell, store)
        try:
            record = run_cell(cell, store, meshes, plan, folder_of(work.out, cell.name), work.environment)
        except RunDiverged as error:
            record = failed_record(cell, store, work.environment, str(error)) if rank == 0 else None
        if record is not None:
            write_record(work.out / f"{cell.name}.json", record)
            if not cell.experiment.training.keep_checkpoints:
                remove_all(folder_of(work.out, cell.name))
            _report(cell, record.model_dump())
    if rank == 0:
        (work.out / RUNNING).unlink(missing_ok=True)


def plan_of(cell: Cell, store: Store) -> Plan:
    """The cell's sharding plan, the same on all ranks; collective over the launch."""
    return agreed_plan(make_cell_plan(cell, _frequencies(cell, store)))


def _frequencies(cell: Cell, store: Store) -> list[NDArray[np.int64]] | None:
    """How often the training samples ask for each row, where the plan depends on it."""
    if cell.layout_level.sharding != "planned":
        return None
    return access_frequencies(store.train, cell.experiment.dataset.rows_of_tables, cell.experiment.model.hots_of_tables)


def agreed_plan(plan: Plan) -> Plan:
    """The plan, once all ranks are known to have made the same one; collective over the launch.

    Raises:
        PlanError: ranks made different plans; says in what they differ.
    """
    plans: list[Plan] = [plan] * dist.get_world_size()
    dist.all_gather_object(plans, plan)
    different = differences(plans)
    if different is not None:
        raise PlanError(f"ranks made different sharding plans: {different}")
    return plan


def _report(cell: Cell, record: dict[str, Any]) -> None:
    if record["status"] == "failed":
        log.warning("%s: failed: %s", cell.name, record["reason"])
    else:
        found = record["metrics"]
        log.info(
            "%s: NE %.4f, AUC %.4f, %.0f samples/s, %.1f s",
            cell.name,
            found["ne"],
            found["auc"],
            found["samples_per_second"],
            record["wall_seconds"],
        )
