"""meshrec's 2D step beside TorchRec's `DMPCollection`: M = 2 replicas of N = T / 2 shards, averaged after every step.

    python tests/benchmarks/torchrec_2d.py [--ranks 4] [--kernel fbgemm] [--repeats 5] [--steps 20] [--dense same]

`DMPCollection` refuses CPUs. There it runs without assertions (`python -O`, for both sides) and with its places renamed, see
`torchrec_side.CpuCollection`; with as many GPUs as ranks it runs as it is. meshrec sends the rows that a step touched,
`DMPCollection` whole shards: the result is the same, untouched rows being equal on all replicas.
"""

from peer_venv import run_in_peer

REPLICAS = 2


def main() -> None:
    """Compare, in TorchRec's environment."""
    import torch
    from comparison import parser, run

    options = parser(__doc__, ranks=[4], repeats=5, steps=20).parse_args()
    gpus, wanted = torch.cuda.device_count(), max(options.ranks)
    run_in_peer(optimise=gpus < wanted)
    if gpus < wanted:
        print(f"DMPCollection as it is: skipped, {wanted} ranks need {wanted} GPUs and this machine has {gpus}")
        print("DMPCollection patched onto the CPU, without assertions:")
    run("torchrec_2d", options, REPLICAS)


if __name__ == "__main__":
    main()
