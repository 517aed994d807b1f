"""The recommenders as plain PyTorch modules."""
