"""How repeats are printed."""

import numpy as np


def spread(values: list[float], digits: str) -> str:
    """`median (min–max)`."""
    return f"{np.median(values):{digits}} ({min(values):{digits}}–{max(values):{digits}})"
