"""Time of whole planning commands, from the start of Python to the end of the process, beside the time of a fixed loop.

    python tools/bench_planning_commands.py                                the nets of docs/benchmarks/planning.md
    python tools/bench_planning_commands.py resnet50 vgg16 --verbs plan,compare
    python tools/bench_planning_commands.py --runs 3         the quickest of three runs of each, on a shared host

CPU seconds of the process; "scaled" divides them by those of ten million additions in a Python loop right
before and after, times the 0.6 s that the loop takes on a core at full speed: a shared host may run a core at a third
of it.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from layermem.proto.read import read_net

PROTOTXT = Path(__file__).resolve().parent.parent / "prototxt"
VERBS = {
    "plan": ["plan", "--budget", "30%"],
    "plan --json": ["plan", "--budget", "30%", "--json"],
    "plan --slices auto": ["plan", "--budget", "30%", "--slices", "auto"],
    "plan cuda": ["plan", "--device", "cuda", "--budget", "20%"],
    "compare": ["compare", "--budget", "30%"],
    "fit": ["fit", "--budget", "8GiB"],
}
DEEP = ("resnet1001", "resnet1517", "resnet2504")  # thousands of layers: `plan` alone
NETS = {
    **dict.fromkeys(
        ("vgg16", "googlenet", "resnet50", "resnext50", "inception_v3", "resnet101", "pspnet", "lstm_lm", "resnet152"),
        VERBS,
    ),
    **dict.fromkeys(DEEP, ("plan",)),
}
LOOP = 10_000_000
LOOP_SECONDS = 0.6  # of the loop at full speed
HEADINGS = ["net", "layers", "command", "CPU s", "wall s", "loop s", "scaled s"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", help="folders below prototxt/")
    parser.add_argument("--verbs", help=f"of {', '.join(VERBS)}; by default all, and plan for {', '.join(DEEP)}")
    parser.add_argument("--runs", type=int, default=1, help="of each command")
    args = parser.parse_args()
    print_row(HEADINGS)
    for net in args.nets or NETS:
        for verb in args.verbs.split(",") if args.verbs else NETS.get(net, VERBS):
            measure(net, verb, args.runs)


def measure(net: str, verb: str, runs: int) -> None:
    """Print the row of a command."""
    path = PROTOTXT / net / "train_val.prototxt"
    command, *options = VERBS[verb]
    before, found = loop_seconds(), []
    for _ in range(runs):
        cpu, wall = seconds_of([sys.executable, "-m", "layermem", command, "--net", str(path), *options])
        after = loop_seconds()
        found.append((wall, cpu, (before + after) / 2))
        before = after
    wall, cpu, loop = min(found)
    layers = len(read_net(path).message.layer)
    seconds = (cpu, wall, loop, cpu / loop * LOOP_SECONDS)
    print_row([net, str(layers), verb, *(f"{each:.2f}" for each in seconds)])


def print_row(cells: list[str]) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


def seconds_of(words: list[str]) -> tuple[float, float]:
    """CPU and wall seconds of a process; its exit code may say that nothing fits."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, check=False)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def loop_seconds() -> float:
    began, total = time.process_time(), 0
    for number in range(LOOP):
        total += number
    return time.process_time() - began


if __name__ == "__main__":
    main()
