"""Checkpoints: written atomically while training, resumed to the bit, loaded into another mesh or plan."""

from meshrec.train.checkpoint.files import CheckpointError, Manifest, latest, read_manifest, remove_all
from meshrec.train.checkpoint.load import load_model, resume
from meshrec.train.checkpoint.progress import Progress
from meshrec.train.checkpoint.save import save

__all__ = [
    "CheckpointError",
    "Manifest",
    "Progress",
    "latest",
    "load_model",
    "read_manifest",
    "remove_all",
    "resume",
    "save",
]
