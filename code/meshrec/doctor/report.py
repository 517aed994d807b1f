"""All findings of a preflight."""

from collections.abc import Iterator, Sequence

from meshrec.data.fetch.sources import Source
from meshrec.doctor.finding import DoctorError, Finding
from meshrec.doctor.fits import Places, experiment_findings
from meshrec.doctor.machine import machine_findings, memory_finding
from meshrec.doctor.sizes import PROCESS_BYTES, most_processes
from meshrec.experiment.schema import Experiment


def examine(experiment: Experiment | None, sources: Sequence[Source], places: Places) -> list[Finding]:
    """Look at the machine, and at what an experiment needs of it. Without one, at what two ranks need."""
    return list(_findings(experiment, sources, places))


def _findings(experiment: Experiment | None, sources: Sequence[Source], places: Places) -> Iterator[Finding]:
    if experiment is None:
        yield from machine_findings(2)
        yield memory_finding("memory, 2 ranks", 2 * PROCESS_BYTES)
        return
    yield from machine_findings(most_processes(experiment))
    yield from experiment_findings(experiment, sources, places)


def refuse_failed(findings: list[Finding]) -> None:
    """End in an error where one is due.

    Raises:
        DoctorError: something needed is missing or won't fit.
    """
    if failed := [found.what for found in findings if found.verdict == "fails"]:
        raise DoctorError(f"{len(failed)} of {len(findings)} checks fail: {'; '.join(failed)}")
