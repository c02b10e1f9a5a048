"""Placement solver: peaks over the lower bound of live bytes, beside greedy rules, and the time that they take.

python tools/bench_placement_solver.py          training steps of several nets: kept, recomputed, offloaded
python tools/bench_placement_solver.py DIR      every DIR/*.csv with columns id, lower, upper, size (the format of
                                                MiniMalloc); a number in a file name, as in A.1048576.csv, is the
                                                capacity
--capacity N      capacity of all problems, instead of those in file names; 0 minimizes the peak
--time-limit S    seconds of search per problem (1)
--no-peers        skip the greedy rules, which take seconds from 10,000 intervals on
"""

from __future__ import annotations

import argparse
import itertools
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from layermem import _native

Intervals = tuple[np.ndarray, np.ndarray, np.ndarray]  # begin, end, size
PEERS: dict[str, Callable[[Intervals], np.ndarray]] = {  # what a rule sorts by, largest first
    "size": lambda it: it[2],
    "area": lambda it: it[2] * (it[1] - it[0]).astype(float),
    "lifetime": lambda it: it[1] - it[0],
    "start": lambda it: -it[0],
}


def peer_height(intervals: Intervals, rule: str) -> int:
    """First fit in the order of one rule: what most frameworks do."""
    begin, end, size = intervals
    offset = np.zeros(len(size), dtype=np.int64)
    done: list[int] = []
    for i in np.argsort(-PEERS[rule](intervals), kind="stable"):
        near = np.array(done, dtype=np.int64)
        near = near[(begin[near] < end[i]) & (begin[i] < end[near])]
        near = near[np.argsort(offset[near])]
        top = np.maximum.accumulate(np.concatenate([[0], offset[near] + size[near]]))
        holes = np.flatnonzero(offset[near] - top[:-1] >= size[i])
        offset[i] = top[holes[0]] if len(holes) else top[-1]
        done.append(i)
    return int((offset + size).max())


class Tape:
    """Turns a list of ops with their reads and writes into residencies."""

    def __init__(self) -> None:
        self.tick = 0
        self.open: dict[tuple[str, int], list[int]] = {}
        self.closed: list[list[int]] = []

    def op(self, reads: list[tuple[str, int]], writes: dict[tuple[str, int], int], workspace: int = 0) -> None:
        for key, size in writes.items():
            if key in self.open and key[0] == "y":  # recomputed: a new residency
                self.closed.append(self.open.pop(key))
            self.open.setdefault(key, [self.tick, self.tick + 1, size])[1] = self.tick + 1
        for key in reads:
            self.open[key][1] = self.tick + 1
        if workspace:
            self.closed.append([self.tick, self.tick + 1, workspace])
        self.tick += 1

    def intervals(self) -> list[list[int]]:
        return self.closed + list(self.open.values())


@dataclass
class Layer:
    inputs: list[int]  # layers before it
    size: int  # bytes of its output, and of its gradient
    weights: int


def residual(blocks: int) -> list[Layer]:
    """Bottleneck blocks of three layers with a shortcut around them, in four stages that halve the maps."""
    layers = [Layer([], 16 * 112 * 112 * 64 * 4, 64 * 3 * 49 * 4)]
    for k in range(blocks):
        stage, start = min(3, 4 * k // blocks), len(layers) - 1
        for part, widen in enumerate((1, 1, 4)):
            shortcut = [start] if part == 2 else []
            size, weights = (16 * 56 * 56 * 64 * 4 >> stage) * widen, (4, 9, 4)[part] * 4 * (64 << stage) ** 2
            layers.append(Layer([len(layers) - 1, *shortcut], size, weights))
    return layers


def inception(modules: int, seed: int) -> list[Layer]:
    """Modules of four branches of one to three layers, joined by a concatenation; sizes at random."""
    random = np.random.default_rng(seed)
    layers = [Layer([], 64 * 112 * 112 * 64 * 4, 64 * 3 * 49 * 4)]
    for k in range(modules):
        start, ends, side = len(layers) - 1, [], 56 >> min(3, 4 * k // modules)
        for depth in (1, 2, 3, 2):
            before = start
            for _ in range(depth):
                channels = int(random.integers(16, 384))
                layers.append(Layer([before], 64 * side * side * channels * 4, int(random.integers(1, 600)) * 1024))
                before = len(layers) - 1
            ends.append(before)
        layers.append(Layer(ends, sum(layers[e].size for e in ends), 0))
    return layers


def hourglass(depth: int) -> list[Layer]:
    """A U-Net: `depth` halvings of two layers each and as many doublings that read across."""
    layers: list[Layer] = []
    for level in [*range(depth), *range(depth - 2, -1, -1)]:
        rising = len(layers) >= 2 * depth
        size, weights = 8 * 572 * 572 * 64 * 4 >> level, 9 * 4 * (64 << level) ** 2
        across = [2 * level + 1] if rising else []
        layers.append(Layer([i for i in (len(layers) - 1, *across) if i >= 0], size, weights))
        layers.append(Layer([len(layers) - 1], size, weights))
    return layers


def training_step(layers: list[Layer], seed: int, segments: int = 0, offloaded: float = 0.0) -> Intervals:
    """Residencies of one step of a net.

    segments    0 keeps every activation, else the inner ones of each segment are rebuilt before its backward
    offloaded   share of the long residencies that are offloaded, which leaves two short ones
    """
    random = np.random.default_rng(seed)
    tape = Tape()

    def forward(i: int) -> None:
        reads = [("y", j) for j in layers[i].inputs]
        tape.op(reads, {("y", i): layers[i].size}, int(layers[i].size * random.integers(0, 6)) // 4)

    def backward(i: int) -> None:
        reads, workspace = [("y", j) for j in layers[i].inputs], int(layers[i].size * random.integers(0, 6)) // 4
        tape.op(reads, {("dy", i): layers[i].size, ("dw", i): layers[i].weights}, workspace)
        tape.op([("dy", i)], {("dy", j): layers[j].size for j in layers[i].inputs}, workspace)
        tape.op([("dw", i)], {})

    cuts = np.linspace(0, len(layers), (segments or 1) + 1).astype(int).tolist()
    for i in range(len(layers)):
        forward(i)
    for first, last in reversed(list(itertools.pairwise(cuts))):
        for i in range(first, last - 1) if last < len(layers) else ():
            forward(i)
        for i in reversed(range(first, last)):
            backward(i)
    residencies = []
    for begin, end, size in tape.intervals():
        leaves = end - begin > len(layers) // 5 and random.random() < offloaded
        residencies += [[begin, begin + 4, size], [end - 5, end, size]] if leaves else [[begin, end, size]]
    residencies += [[0, tape.tick, layer.weights] for layer in layers for _ in ("weight", "momentum")]
    table = np.array(residencies, dtype=np.int64)
    return table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy()


def training_cases() -> Iterator[tuple[str, Intervals, int]]:
    nets = {f"residual-{3 * blocks}": residual(blocks) for blocks in (16, 50, 167, 505)}
    nets |= {f"inception-{modules}": inception(modules, seed=modules) for modules in (9, 40)}
    nets |= {f"hourglass-{depth}": hourglass(depth) for depth in (5, 9)}
    for name, net in nets.items():
        root = int(len(net) ** 0.5)
        for plan, segments, offloaded in (("kept", 0, 0.0), ("recompute", root, 0.0), ("offload", 0, 0.5)):
            yield f"{name} {plan}", training_step(net, len(net), segments, offloaded), 0


def csv_cases(folder: Path, capacity: int | None) -> Iterator[tuple[str, Intervals, int]]:
    for path in sorted(folder.glob("*.csv")):
        table = np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.int64, ndmin=2)
        named = re.search(r"\.(\d+)\.csv$", path.name)
        target = capacity if capacity is not None else int(named[1]) if named else 0
        yield path.stem, (table[:, 1].copy(), table[:, 2].copy(), table[:, 3].copy()), target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--capacity", type=int)
    parser.add_argument("--time-limit", type=float, default=1.0)
    parser.add_argument("--no-peers", action="store_true")
    args = parser.parse_args()
    cases = csv_cases(args.folder, args.capacity) if args.folder else training_cases()
    peers = () if args.no_peers else tuple(PEERS)
    print("height over max live, or over the capacity where one is given" + "; first fit by" * bool(peers))
    print(f"{'':26}{'intervals':>10}{'max live':>15}{'layermem':>9}{'seconds':>9}" + "".join(f"{p:>10}" for p in peers))
    total, missed = 0.0, 0
    for name, intervals, target in cases:
        align = 256 if args.folder is None else 1
        began = time.perf_counter()
        p = _native.place(*intervals, align=align, time_limit=args.time_limit, target=target)
        seconds = time.perf_counter() - began
        goal = max(target, p.bound)
        total, missed = total + seconds, missed + (p.height > goal)
        row = f"{name:26}{len(intervals[0]):10}{p.max_live:15}{p.height / goal:9.4f}{seconds:9.3f}"
        aligned = (*intervals[:2], -(-intervals[2] // align) * align)
        row += "".join(f"{peer_height(aligned, rule) / goal:10.4f}" for rule in peers)
        print(f"{row}  {p.method}", flush=True)
    print(f"total {total:.2f} s, {missed} above the goal")


if __name__ == "__main__":
    main()
