"""Layouts, optimizers and kernels that don't go together are refused by file, line and key before anything runs."""

from pathlib import Path

import pytest

from meshrec.experiment import ExperimentError, load_experiment

SMOKE = (Path(__file__).resolve().parents[2] / "experiments" / "smoke.yaml").read_text()
PLAIN = "{kind: rowwise_adagrad, lr: 0.02}"
SGD = "{kind: sgd, lr: 0.02}"
MOMENTUM = "{kind: momentum_rowwise_adagrad, lr: 0.02, beta: 0.9}"
DENSITY = "{kind: density_scaled_rowwise_adagrad, lr: 0.02, replicas: 2}"
TWO = "replicas: 2, ranks: [2, 4]"


def written(folder: Path, layout: str, optimizer: str, kernel: str) -> Path:
    """The smoke experiment with another kernel, and one layout and one optimizer more that are crossed with each other only."""
    changes = {
        "training:\n": f"training:\n  kernel: {kernel}\n",
        "layouts:\n  1d:": f"layouts:\n  odd: {layout}\n  1d:",
        "  plain:": f"  other: {optimizer[:-1]}, layouts: [odd]}}\n  plain:",
        "lr: 0.02}\n  scaled:": "lr: 0.02, layouts: [1d, 2d]}\n  scaled:",
        "moment_scale: 2}": "moment_scale: 2, layouts: [1d, 2d]}",
    }
    text = SMOKE
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path = folder / "smoke.yaml"
    path.write_text(text)
    return path


def refusals(path: Path) -> list[str]:
    try:
        load_experiment(path)
    except ExperimentError as error:
        return str(error).splitlines()
    return []


OF_LAYOUT, OF_OPTIMIZER = "  odd: ", "  other: "
OTHER_KERNELS = "set training.kernel to numba or torch"


@pytest.mark.parametrize(
    ("layout", "optimizer", "kernel", "where", "key", "message"),
    [
        (f"{{{TWO}}}", MOMENTUM, "fbgemm", OF_OPTIMIZER, "optimizers.other.kind", "fbgemm has no momentum_rowwise_adagrad: "),
        ("{}", DENSITY, "fbgemm", OF_OPTIMIZER, "optimizers.other.kind", "fbgemm has no density_scaled_rowwise_adagrad: "),
        (f"{{{TWO}, sync_moments: lagged}}", SGD, "numba", OF_LAYOUT, "layouts.odd.sync_moments", "no moments to keep lagged"),
        (f"{{{TWO}, sync_moments: lagged}}", PLAIN, "fbgemm", OF_LAYOUT, "layouts.odd.sync_moments", "no lagging moments: "),
        ("{sharding: column-wise}", PLAIN, "fbgemm", OF_LAYOUT, "layouts.odd.sharding", "makes it another optimizer"),
        (
            "{tables: {3: column-wise}}",
            PLAIN,
            "fbgemm",
            OF_LAYOUT,
            "layouts.odd.tables",
            f"{OTHER_KERNELS}, or optimizer other to sgd",
        ),
        (
            f"{{{TWO}, sync: gradients}}",
            DENSITY,
            "torch",
            OF_LAYOUT,
            "layouts.odd.sync",
            "have one global mean, to which optimizer other's c doesn't apply",
        ),
        (
            "{sharding: column-wise}",
            DENSITY,
            "torch",
            OF_LAYOUT,
            "layouts.odd.sharding",
            "other counts hits where whole rows are",
        ),
        ("{tables: {3: column-wise}}", DENSITY, "numba", OF_LAYOUT, "layouts.odd.tables", "other counts hits where whole rows"),
        (
            "{tables: {3: replicated}}",
            DENSITY,
            "torch",
            OF_LAYOUT,
            "layouts.odd.tables",
            "other counts hits where whole rows are",
        ),
    ],
)
def test_an_impossible_combination_is_refused_once_by_file_line_and_key(
    tmp_path: Path, layout: str, optimizer: str, kernel: str, where: str, key: str, message: str
):
    path = written(tmp_path, layout, optimizer, kernel)
    line = next(number for number, text in enumerate(path.read_text().splitlines(), start=1) if text.startswith(where))
    found = refusals(path)
    assert len(found) == 1
    assert found[0].startswith(f"{path}:{line}: {key}: "), found
    assert message in found[0]
    if kernel == "fbgemm":
        assert OTHER_KERNELS in found[0]


@pytest.mark.parametrize(
    ("layout", "optimizer", "kernel"),
    [
        *((f"{{{TWO}}}", optimizer, kernel) for optimizer in (MOMENTUM, DENSITY) for kernel in ("numba", "torch")),
        (f"{{{TWO}, sync_moments: lagged}}", PLAIN, "numba"),
        ("{sync_moments: lagged, sharding: row-wise}", PLAIN, "fbgemm"),  # nothing to lag behind
        ("{sharding: column-wise}", PLAIN, "numba"),
        ("{sharding: column-wise}", SGD, "fbgemm"),
        ("{replicas: 4, sharding: column-wise, ranks: [4]}", PLAIN, "fbgemm"),  # a group of one has all columns
        (f"{{{TWO}, sync: gradients}}", PLAIN, "fbgemm"),
        (f"{{{TWO}, sync: gradients}}", MOMENTUM, "torch"),
        ("{sharding: row-wise, sync: gradients}", DENSITY, "torch"),  # no twins
        ("{sharding: row-wise}", DENSITY, "numba"),
        ("{sharding: planned}", DENSITY, "numba"),
        ("{tables: {3: replicated}}", PLAIN, "fbgemm"),
    ],
)
def test_what_goes_together_is_accepted(tmp_path: Path, layout: str, optimizer: str, kernel: str):
    assert refusals(written(tmp_path, layout, optimizer, kernel)) == []


def test_levels_that_are_never_crossed_may_be_impossible_together(tmp_path: Path):
    path = written(tmp_path, f"{{{TWO}, sync: gradients}}", PLAIN, "torch")
    text = path.read_text().replace("  other: ", f"  dense: {DENSITY[:-1]}, layouts: [1d, 2d]}}\n  other: ")
    path.write_text(text)
    assert refusals(path) == []
    path.write_text(text.replace("layouts: [1d, 2d]}\n  other: ", "layouts: [1d, odd]}\n  other: "))
    assert len(refusals(path)) == 1


def test_every_impossible_pair_is_named(tmp_path: Path):
    path = written(tmp_path, f"{{{TWO}, sync_moments: lagged, sharding: column-wise}}", MOMENTUM, "fbgemm")
    keys = [line.split(": ")[1] for line in refusals(path)]
    assert keys == ["optimizers.other.kind", "layouts.odd.sync_moments", "layouts.odd.sharding"]
