"""Preflight: what this machine has, what an experiment needs, and what won't fit, before hours are spent."""
