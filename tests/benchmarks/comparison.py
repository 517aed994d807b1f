"""Command line and report of the comparisons with TorchRec."""

import argparse

from results_file import write
from workload import OPTIMIZERS, Workload


def parser(description: str | None, ranks: list[int], repeats: int, steps: int) -> argparse.ArgumentParser:
    """Options that the comparisons share, with their defaults."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--ranks", type=int, nargs="+", default=ranks, help="numbers of ranks, one CPU thread each")
    options.add_argument("--kernel", default="fbgemm", help="meshrec's training.kernel; TorchRec's is always fbgemm")
    options.add_argument(
        "--pipeline",
        choices=("sequential", "prefetch"),
        default="sequential",
        help="meshrec's; prefetch is its default elsewhere",
    )
    options.add_argument("--optimizer", choices=OPTIMIZERS, default="rowwise_adagrad", help="of the tables; dense is SGD")
    options.add_argument("--dense", choices=("same", "torchrec"), default="same", help="dense module on TorchRec's side")
    options.add_argument("--repeats", type=int, default=repeats, help="timed turns of each side")
    options.add_argument("--steps", type=int, default=steps, help="steps in a turn")
    options.add_argument("--batch", type=int, default=2048, help="samples in a step over all ranks")
    return options


def run(name: str, options: argparse.Namespace, replicas: int) -> None:
    """Compare at each number of ranks; print a line for each and write the raw numbers after each."""
    from alternate import HEADER, compare, raw_numbers

    print(HEADER, flush=True)
    workloads, timings = [], []
    for ranks in options.ranks:
        workloads.append(
            Workload(ranks, replicas, options.optimizer, kernel=options.kernel, pipeline=options.pipeline, batch=options.batch)
        )
        timings.append(compare(workloads[-1], options.dense, options.repeats, options.steps))
        print(timings[-1].line(), flush=True)
        numbers = raw_numbers(workloads, timings, vars(options))
        path = write(f"{name}-{options.kernel}-{options.pipeline}-{options.optimizer}-{options.dense}-{options.batch}", numbers)
    print(", ".join(f"{package} {version}" for package, version in numbers["environment"]["packages"].items()))
    print(f"commit {numbers['environment']['commit']}, {numbers['environment']['cores']} cores; raw numbers in {path}")
