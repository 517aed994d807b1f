"""From tables to figures and the report."""
