"""What the parallel layout and what the optimizer each contribute when recommender models are trained over a mesh."""

__version__ = "0.1.0"
