"""Ranks: launch, layouts, process groups and collectives that count their bytes."""
