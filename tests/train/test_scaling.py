"""Strong and weak scaling, each at more than one rank count, consume the same samples in the same order."""

from pathlib import Path

from meshrec.experiment.record import read_record
from meshrec.train.block import train_block
from support.experiments import OPTIMIZERS, small_experiment


def test_batches_follow_the_scaling_and_samples_do_not(store: Path, tmp_path: Path):
    scaling = {"strong": {"global_batch": 96}, "weak": {"rank_batch": 64}}
    experiment = small_experiment([1, 2], {"1d": {}}, {"sgd": OPTIMIZERS["sgd"]}, scaling=scaling)
    records = {}
    for ranks in (1, 2):
        assert train_block(experiment, ranks, 0, store, tmp_path / str(ranks)) == 0
        for label in scaling:
            records[ranks, label] = read_record(tmp_path / str(ranks) / f"1d.sgd.{label}.json")
    steps = {key: record.metrics.steps for key, record in records.items() if record.metrics}
    samples = 4096 // 384 * 384  # 384 is the least common multiple of 96, 64 and 128
    assert steps == {
        (1, "strong"): samples // 96,
        (1, "weak"): samples // 64,
        (2, "strong"): samples // 96,
        (2, "weak"): samples // 128,
    }
    assert {record.metrics.samples for record in records.values() if record.metrics} == {samples}
    assert len({record.hashes.order for record in records.values() if record.hashes}) == 1
