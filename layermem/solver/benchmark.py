"""Times programs: a step, each of its ops, and the link between the arena and the host.

The data are one batch, read once (noise if there is no data set), the weights come from the fillers, and the learning
rate is 0, so that every step computes the same numbers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from layermem.backends.base import Device
from layermem.backends.registry import StepContext
from layermem.data import open_feed
from layermem.errors import InputError
from layermem.graph.net import Net, Node
from layermem.graph.ops import UPDATE, Graph
from layermem.layers.data import FEEDS
from layermem.ops import ByteImages
from layermem.proto.schema import SolverParameter
from layermem.runtime.runner import Runner
from layermem.schedule.joined import joined
from layermem.schedule.program import Program
from layermem.solver.noise import noise_feed
from layermem.solver.parameters import Parameters
from layermem.solver.rules import settings
from layermem.utils.stopwatch import seconds_since

SEED = 1
WARM = 1  # runs before timing starts
MAX_WARM = 10_000  # steps of a warm-up, should the clock stand still
LINK_BYTES = 2**26
LINK_RUNS = 5


@dataclass(frozen=True)
class Measured:
    """The result of a benchmark: `seconds` is the median of the steps, `peak` the last byte that an instruction
    touches."""

    seconds: float
    peak_bytes: int


class Benchmark:
    """A program on a device, ready to run its training step repeatedly.  `net` is the train net."""

    def __init__(self, net: Net, program: Program, device: Device, *, spill: Any = None):
        net.check_runnable(device.name, device.implements)
        self.device, self.program = device, program
        self.context: StepContext = {
            **settings(SolverParameter()),
            "seed": SEED,
            "step": 0,
            "iteration": 0,
            "rate": 0.0,
        }
        self.runner = Runner(program, device, self.context, spill=spill)
        Parameters((net,), self.runner, 0).fill(SEED)
        self.context["batch"] = one_batch(net, in_bytes=device.takes_bytes)

    def steps(self, count: int) -> Measured:
        """Time `count` steps."""
        seconds = [self.step(run) for run in range(WARM + count)]
        return Measured(median(seconds[WARM:]), self.runner.measured_peak_bytes)

    def step(self, number: int = 0) -> float:
        """Run one step and return its seconds."""
        self.context["step"] = number
        began = time.perf_counter()
        self.runner.run(next_batch=lambda: self.context["batch"])
        return seconds_since(began)

    def warm_up(self, seconds: float) -> None:
        """Run whole steps for `seconds`, so that an idle GPU raises its clock; at least one if `seconds` is
        positive."""
        if seconds <= 0:
            return
        began = time.perf_counter()
        for _ in range(MAX_WARM):
            self.step()
            if seconds_since(began) >= seconds:
                return

    def ops(self, count: int) -> dict[str, float]:
        """Median seconds of each op of the step over `count` runs, without recomputations.  The time of a group that is
        launched together is divided in proportion to the bytes of its ops."""
        executor = self.runner.executors[0]
        found: dict[str, list[float]] = {}
        for run in range(WARM + count):
            self.context["step"] = run
            for group in joined(executor.schedule.instructions):
                spent = self.device.seconds([executor.calls[each.tick] for each in group])
                ops = [each.op for each in group if each.op is not None and not each.is_recompute]
                for op in ops if run >= WARM else ():
                    share = op.nbytes / sum(each.nbytes for each in ops) if len(ops) > 1 else 1.0
                    found.setdefault(op.name, []).append(share * spent)
        return {name: median(seconds) for name, seconds in found.items()}


def link(device: Device, nbytes: int = LINK_BYTES) -> tuple[float, float]:
    """Bytes per second from the arena to the host, and in the other direction."""
    arena, host = device.arena(nbytes), device.host_arena(nbytes)
    here, there = arena.span(0, nbytes), host.span(0, nbytes)
    rates = []
    for source, target in ((here, there), (there, here)):
        copy = device.bind_copy(target, source)
        seconds = []
        for _ in range(WARM + LINK_RUNS):
            began = time.perf_counter()
            device.run([copy])
            seconds.append(seconds_since(began))
        rates.append(nbytes / median(seconds[WARM:]))
    return rates[0], rates[1]


def one_batch(net: Net, *, in_bytes: bool = False) -> dict[str, Sequence[np.ndarray | ByteImages]]:
    """A batch for every input layer of `net`: its own data, or noise if there is no data set or it has other shapes.

    in_bytes   whether images that are stored in bytes are delivered as ByteImages"""
    found = {}
    for node in net.nodes:
        if node.layer.type in FEEDS:
            found[node.layer.name] = _first(node, net, in_bytes)
    return found


def _first(node: Node, net: Net, in_bytes: bool) -> Sequence[np.ndarray | ByteImages]:
    if node.layer.unread:
        return noise_feed(net, node, SEED).next()
    try:
        feed = open_feed(
            node.layer.param,
            net.phase,
            SEED,
            path=str(net.path),
            prefetch=False,
            in_bytes=in_bytes,
            files=net.file.files,
        )
        if tuple(feed.shapes) == tuple(top.shape for top in node.layer.tops):
            return [top if isinstance(top, ByteImages) else np.array(top) for top in feed.next()]
    except InputError:  # there is no data set, or the caller would give arrays
        pass
    return noise_feed(net, node, SEED).next()


@dataclass
class LayerTime:
    """Seconds by kind of op (forward, backward, update), and the work of all ops of a layer."""

    name: str
    type: str
    seconds: dict[str, float] = field(default_factory=dict)
    flops: int = 0
    nbytes: int = 0

    def rate(self, amount: int) -> float:
        """`amount` in units of 10^9 per second."""
        spent = sum(self.seconds.values())
        return amount / spent / 1e9 if spent else 0.0


def times_by_layer(graph: Graph, seconds: Mapping[str, float]) -> list[LayerTime]:
    """The times of ops gathered by layer, in the order of the graph; updates, and ops of no layer, come last."""
    layers: dict[tuple[int, ...], LayerTime] = {}  # by run of a node
    others = {kind: LayerTime(name, "") for kind, name in ((UPDATE, "(updates)"), ("", "(in and out)"))}
    fused_updates = [fused for fused in graph.fused_updates if fused.name in seconds]
    covered = {name for fused in fused_updates for name in fused.covers}
    for op in (*(op for op in graph.ops if op.name not in covered), *fused_updates):
        if op.layer_name:
            found = layers.setdefault(op.node_run, LayerTime(op.layer_name, op.layer_type))
        else:
            found = others[op.kind if op.kind in others else ""]
        found.seconds[op.kind] = found.seconds.get(op.kind, 0.0) + seconds.get(op.name, 0.0)
        found.flops += op.flops
        found.nbytes += op.nbytes
    return [*layers.values(), *(each for each in others.values() if each.seconds)]
