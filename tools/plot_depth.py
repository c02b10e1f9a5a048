"""Peak memory of ResNets over depth, under several strategies; sublinear ones grow with sqrt(depth).

    python tools/plot_depth.py [--batch 32] [--out docs/pictures/depth.png] [--depths 50 101 200 ...]

Plans only; nothing runs.  The bytes exclude parameters, their gradients and optimizer state, which these strategies
keep.  Prints the numbers, and the log-log slope of each line between the first and the last depth: 1 is linear, 0.5 the
square root.
"""

from __future__ import annotations

import argparse
import sys
from math import log
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from layermem.backends.base import get_device
from layermem.data import probe
from layermem.graph.net import Net
from layermem.graph.train import Rule, train_graph
from layermem.nets.resnet import imagenet, split
from layermem.planning.pipeline import compile
from layermem.proto.read import read_net_text

STRATEGIES = ["liveness", "sublinear", "recompute"]


def managed_bytes(depth: int, batch: int) -> dict[str, int]:
    """Strategy -> peak without persistent bytes."""
    net = Net(read_net_text(str(imagenet(depth, split(depth), batch, 1))), 0, probe=probe)
    graph = train_graph(net, get_device("cpu"), Rule("SGD", 1))
    peaks = {}
    for strategy in STRATEGIES:
        schedule = compile([graph], strategy=strategy).train
        peaks[strategy] = schedule.peak_bytes - schedule.persistent_bytes
    return peaks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--depths", type=int, nargs="+", default=[50, 101, 152, 200, 302, 401, 602, 800, 1001])
    options = parser.parse_args()
    lines: dict[str, list[float]] = {strategy: [] for strategy in STRATEGIES}
    print("depth  " + "  ".join(f"{s:>12}" for s in STRATEGIES) + "   [MiB]")
    for depth in options.depths:
        for strategy, nbytes in managed_bytes(depth, options.batch).items():
            lines[strategy].append(nbytes / 2**20)
        print(f"{depth:5}  " + "  ".join(f"{lines[s][-1]:12,.0f}" for s in STRATEGIES), flush=True)
    first, last = options.depths[0], options.depths[-1]
    slopes = {s: log(values[-1] / values[0]) / log(last / first) for s, values in lines.items()}
    print("slope  " + "  ".join(f"{slopes[s]:12.2f}" for s in STRATEGIES))
    if options.out:
        figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
        for strategy, values in lines.items():
            axes.loglog(options.depths, values, "o-", label=f"{strategy} (slope {slopes[strategy]:.2f})")
        start = lines["sublinear"][0]
        axes.loglog(options.depths, [start * (d / first) ** 0.5 for d in options.depths], "k:", label="square root")
        axes.set_xlabel("layers")
        axes.set_ylabel("activations, gradients and workspace at the peak [MiB]")
        axes.set_title(f"ResNets at batch {options.batch}, 224x224")
        axes.legend()
        figure.savefig(options.out, dpi=110)


if __name__ == "__main__":
    main()
