"""One look for all figures: colour-blind safe, legible when printed one column wide, the same bytes for the same numbers."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from meshrec.publish.files import whole_file

WIDTH_INCHES = 4.2
"""A little more than a column: printed 3.4 inches wide, text of 8 points comes out at 6.5."""
NARROW_INCHES = 3.4
"""As wide as a phone: shown 360 pixels wide, text of 8 points is 12 pixels high."""

REFERENCE, OTHER = "#0072B2", "#D55E00"
"""Blue and vermilion of Okabe and Ito: told apart with every kind of colour vision, and in grey."""
INK, FAINT, BAND = "#222222", "#8a8a8a", "#dff0e6"

RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that figures look the same everywhere
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.7,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.unicode_minus": True,
    "pdf.fonttype": 42,  # embedded TrueType: text in the PDF stays text
    "savefig.dpi": 300,
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the project's style whatever the reader's own matplotlib settings are."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(RC)
        yield


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write `name.pdf` and `name.png`, without date or software version."""
    for suffix, metadata in (("pdf", {"CreationDate": None, "Producer": None, "Creator": None}), ("png", {"Software": None})):
        with whole_file(folder / f"{name}.{suffix}") as partial:
            figure.savefig(partial, metadata=metadata)
