"""What is run: an experiment file becomes blocks of cells. Pure Python, fast to import, no torch."""

from meshrec.experiment.cells import Block, Cell, blocks, cells_of, dataset_id
from meshrec.experiment.load import ExperimentError, load_experiment
from meshrec.experiment.schema import Experiment

__all__ = ["Block", "Cell", "Experiment", "ExperimentError", "blocks", "cells_of", "dataset_id", "load_experiment"]
