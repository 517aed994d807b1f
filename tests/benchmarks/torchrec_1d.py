"""meshrec's 1D step beside TorchRec's `DistributedModelParallel`: same model, plan, data and batch, in the same processes.

    python tests/benchmarks/torchrec_1d.py [--ranks 1 2 4] [--kernel fbgemm] [--repeats 7] [--steps 60] [--dense same]

Both sides begin with a NumPy batch and end with updated tables and dense parameters; neither fetches ahead. With `--dense same`
TorchRec trains meshrec's own dense module, so that the ratio is that of the sparse engines and the data parallelism; with
`--dense torchrec` it trains the layers of `torchrec.models.dlrm`, as its users would.
"""

from peer_venv import run_in_peer


def main() -> None:
    """Compare, in TorchRec's environment."""
    run_in_peer()
    from comparison import parser, run

    run("torchrec_1d", parser(__doc__, ranks=[1, 2, 4], repeats=7, steps=60).parse_args(), replicas=1)


if __name__ == "__main__":
    main()
