"""Contrasts, intervals, equivalence, power and families of tests. Pure functions: no files, no plots, no torch."""

from meshrec.stats.equivalence import Verdict, tost_p, verdict
from meshrec.stats.factorial import Weights, contrast_by_seed, factorial_weights, pair_weights
from meshrec.stats.family import adjust, benjamini_hochberg, holm
from meshrec.stats.paired import PairedEstimate, paired_t
from meshrec.stats.power import paired_t_power, smallest_n, tost_power

__all__ = [
    "PairedEstimate",
    "Verdict",
    "Weights",
    "adjust",
    "benjamini_hochberg",
    "contrast_by_seed",
    "factorial_weights",
    "holm",
    "pair_weights",
    "paired_t",
    "paired_t_power",
    "smallest_n",
    "tost_p",
    "tost_power",
    "verdict",
]
