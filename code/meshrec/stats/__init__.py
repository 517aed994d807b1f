"""Contrasts, intervals and equivalence tests: pure functions on tidy tables."""
