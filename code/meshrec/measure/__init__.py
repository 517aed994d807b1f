"""Clocks, wire bytes, memory and the environment."""
