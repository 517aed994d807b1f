"""What a rank knows of a run besides the model: losses, times, bytes, and which rows await an average."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from meshrec.embeddings.replicate import SyncSize
from meshrec.measure.clock import PhaseClock
from meshrec.measure.ledger import Entry
from meshrec.train.trainer import Trainer


@dataclass
class Progress:
    """A rank's part of a run so far."""

    done: int
    """Steps."""
    losses: torch.Tensor
    """[steps] global mean loss."""
    clock: PhaseClock

    def write(self, path: Path, trainer: Trainer) -> None:
        """Write what this rank knows after `done` steps as arrays, without a pickle."""
        known = {
            "ledger": {name: asdict(entry) for name, entry in trainer.ledger.entries.items()},
            "sync_sizes": [asdict(size) for size in trainer.embeddings.sync_sizes],
            "held": asdict(trainer.held),
            "buffer_bytes": trainer.embeddings.exchange.buffer_bytes,
        }
        with path.open("wb") as file:
            np.savez(file, allow_pickle=False, **self._arrays(known), **_pending_rows(trainer))

    def _arrays(self, known: dict[str, Any]) -> dict[str, NDArray[Any]]:
        return {
            "known": np.array(json.dumps(known)),
            "losses": self.losses[: self.done].cpu().numpy(),
            "step_seconds": self.clock.step_seconds[: self.done],
            "seconds": self.clock.seconds[: self.done],
            "random": torch.get_rng_state().numpy(),
        }

    def read(self, path: Path, trainer: Trainer) -> None:
        """Take over what was written, in the same mesh."""
        with np.load(path, allow_pickle=False) as arrays:
            known = json.loads(str(arrays["known"]))
            self.done = arrays["losses"].size
            self.losses[: self.done] = torch.from_numpy(arrays["losses"]).to(self.losses.device)
            self.clock.resume(arrays["step_seconds"], arrays["seconds"])
            torch.set_rng_state(torch.from_numpy(arrays["random"]))
            pending = {name: arrays[name] for name in arrays.files if name.startswith(_TOUCHED)}
        trainer.ledger.entries.update({name: Entry(**entry) for name, entry in known["ledger"].items()})
        trainer.embeddings.sync_sizes.extend(SyncSize(**size) for size in known["sync_sizes"])
        trainer.held.embedding_activations = known["held"]["embedding_activations"]
        trainer.held.embedding_gradients = known["held"]["embedding_gradients"]
        _restore_pending_rows(trainer, pending)


_TOUCHED = "touched-"


def _pending_rows(trainer: Trainer) -> dict[str, NDArray[Any]]:
    """Rows touched since the last average, by `touched-STEP-LOOKUPS-TWIN`."""
    average = trainer.embeddings.average
    return {
        f"{_TOUCHED}{step}-{touched.lookups}-{twin}": rows.cpu().numpy()
        for step, touched in (average.touched.items() if average else ())
        for twin, rows in enumerate(touched.rows or [torch.empty(0, dtype=torch.int64)])
    }


def _restore_pending_rows(trainer: Trainer, pending: dict[str, NDArray[Any]]) -> None:
    average = trainer.embeddings.average
    if average is None:
        return
    device = trainer.mesh.device
    steps: dict[tuple[int, int], list[torch.Tensor]] = {}
    for name in sorted(pending, key=lambda name: int(name.rpartition("-")[2])):
        step, lookups, _ = map(int, name.removeprefix(_TOUCHED).split("-"))
        steps.setdefault((step, lookups), []).append(torch.from_numpy(pending[name]).to(device))
    for (step, lookups), rows in sorted(steps.items()):
        average.touch(step, rows if average.lists_rows else [], lookups)
