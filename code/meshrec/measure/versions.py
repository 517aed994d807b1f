"""Which torch, fbgemm and CUDA are installed and whether they go together, known before either is imported.

A pair that doesn't match fails with an undefined symbol, or worse, so package metadata is read first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

FBGEMM_OF_TORCH = {"2.13": "1.8"}
"""Release series that are built against each other."""
DISTRIBUTIONS = ("torch", "fbgemm-gpu", "fbgemm-gpu-cpu")


class VersionError(ValueError):
    """Installed packages that can't work together. The message says what was found, what is wanted and what to do."""


@dataclass(frozen=True)
class Versions:
    """The triple that decides which kernels run."""

    torch: str
    fbgemm: str
    fbgemm_distribution: str
    """`fbgemm-gpu-cpu` or `fbgemm-gpu`."""

    @property
    def cuda_kernels(self) -> bool:
        """Whether fbgemm's CUDA kernels are installed."""
        return self.fbgemm_distribution == "fbgemm-gpu"


def installed_versions() -> dict[str, str]:
    """Versions of those of `DISTRIBUTIONS` that are installed, from their metadata alone."""
    found = {}
    for name in DISTRIBUTIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def check_versions(installed: Mapping[str, str] | None = None) -> Versions:
    """Refuse every combination that isn't one torch with one matching fbgemm.

    Args:
        installed: version of each installed distribution; read from this environment when left out.

    Raises:
        VersionError: something is missing, doubled or of another series.
    """
    if installed is None:
        installed = installed_versions()
    if "torch" not in installed:
        raise VersionError(f"torch is not installed; want torch {' or '.join(FBGEMM_OF_TORCH)}.*: run ./reproduce setup")
    torch, distribution = installed["torch"], _the_fbgemm(installed)
    fbgemm = installed[distribution]
    wanted = FBGEMM_OF_TORCH.get(series(torch))
    if wanted is None:
        known = ", ".join(f"torch {key}.* with fbgemm {value}.*" for key, value in FBGEMM_OF_TORCH.items())
        raise VersionError(f"found torch {torch}, want {known}: run ./reproduce setup")
    if series(fbgemm) != wanted:
        raise VersionError(
            f"found {distribution} {fbgemm} with torch {torch}; torch {series(torch)}.* goes with fbgemm {wanted}.* and no "
            f"other: pip install --no-deps {distribution}=={wanted}.0"
        )
    if distribution == "fbgemm-gpu" and torch.endswith("+cpu"):
        raise VersionError(
            f"found fbgemm-gpu {fbgemm} (CUDA) with torch {torch}, which has no CUDA; install a CUDA build of torch, or "
            "fbgemm-gpu-cpu in place of fbgemm-gpu"
        )
    return Versions(torch, fbgemm, distribution)


def cuda_in_use() -> str:
    """CUDA version and devices as torch sees them, or why there is none. Imports torch: call after `check_versions`."""
    import torch

    if torch.version.cuda is None:
        return "none (CPU build of torch)"
    if not torch.cuda.is_available():
        return f"{torch.version.cuda} (no device: ranks run on the CPU)"
    return f"{torch.version.cuda} ({torch.cuda.device_count()} × {torch.cuda.get_device_name(0)})"


def check_kernels(versions: Versions) -> None:
    """Load fbgemm's kernels, so that a damaged installation is found here and not by a rank.

    Raises:
        VersionError: the kernels don't load.
    """
    try:
        import fbgemm_gpu.split_table_batched_embeddings_ops_training  # noqa: F401
    except Exception as error:  # whatever a broken binary raises while it loads
        raise VersionError(
            f"{versions.fbgemm_distribution} {versions.fbgemm} doesn't load with torch {versions.torch}: {error}; "
            "delete .venv and run ./reproduce setup"
        ) from error


def series(release: str) -> str:
    """`2.13` of `2.13.0+cpu`."""
    return ".".join(release.partition("+")[0].split(".")[:2])


def _the_fbgemm(installed: Mapping[str, str]) -> str:
    found = [name for name in DISTRIBUTIONS[1:] if name in installed]
    if not found:
        raise VersionError("fbgemm is not installed; want fbgemm-gpu-cpu, or fbgemm-gpu for CUDA: run ./reproduce setup")
    if len(found) == 2:
        raise VersionError(
            "fbgemm-gpu and fbgemm-gpu-cpu are both installed: they unpack into one folder and the second has overwritten "
            "files of the first; uninstall both, then install one again"
        )
    return found[0]
