"""The optimum of a tiny step by exhaustive search: any order, any number of recomputations, copies beside ops.

A state is what has run, and which buffers are on the device and on the host.  In a transition one op may run, one
buffer go out and another come back, all at once, for the longest of the three; or bytes are freed, for nothing.  A real
schedule may do better (copies need not begin with an op), so the optimum is at or above every valid bound.
"""

from __future__ import annotations

import random
from dataclasses import replace
from heapq import heappop, heappush
from itertools import chain, combinations

from layermem.graph.ops import BACKWARD, DATA, DIFF, FORWARD, PARAMETER, Buffer, Graph, Op
from layermem.layers import Tensor
from layermem.ops import Silence
from layermem.planning.costs import Costs

UNIT = 256  # bytes: sizes are multiples, as in an arena


def random_step(seed: int, values: int, *, parameter: bool = False) -> Graph:
    """A random DAG of forward ops, each with a backward op that reads gradients of its readers and some values."""
    draw = random.Random(seed)
    buffers: dict[str, Buffer] = {}
    ops: list[Op] = []

    def add(name: str, kind: str, reads: list[str], out: str, kind_of_buffer: str) -> None:
        buffers[out] = Buffer(out, kind_of_buffer, Tensor((64,)), draw.choice((1, 1, 2, 3)) * UNIT)
        roles = {buffer: buffer for buffer in (*reads, out)}
        made = Op(
            name,
            kind,
            Silence(),
            "run",
            roles,
            tuple(reads),
            (out,),
            flops=draw.choice((1, 2, 5)),
            workspace_bytes=draw.choice((0, 0, UNIT)),
        )
        ops.append(replace(made, recompute=made) if kind == FORWARD and (reads or draw.random() < 0.5) else made)

    if parameter:
        buffers["w"] = Buffer("w", PARAMETER, Tensor((64,)), 2 * UNIT, persistent=True)
    inputs: list[list[int]] = []
    for v in range(values):
        inputs.append(sorted({draw.randrange(v) for _ in range(draw.choice((1, 1, 2)))}) if v else [])
        weights = ["w"] if parameter and v == 1 else []
        add(f"f{v}", FORWARD, [*(f"x{u}" for u in inputs[v]), *weights], f"x{v}", DATA)
    for v in reversed(range(values)):
        readers = [w for w in range(v + 1, values) if v in inputs[w]]
        saved = {f"x{u}" for u in (*inputs[v], v) if draw.random() < 0.6}
        weights = ["w"] if parameter and v == 1 else []
        reads = [*(f"d{w}" for w in readers), *sorted(saved), *weights] or [f"x{v}"]
        add(f"b{v}", BACKWARD, reads, f"d{v}", DIFF)
    return Graph(f"random {seed}", buffers, tuple(ops), "cpu")


def another_order(graph: Graph, seed: int) -> Graph:
    """The same ops in another order that runs."""
    draw, left, done = random.Random(seed), list(graph.ops), set()
    order: list[Op] = []
    while left:
        ready = [op for op in left if all(graph.producer[b].name in done for b in op.reads if b in graph.producer)]
        op = draw.choice(ready)
        left.remove(op)
        order.append(op)
        done.add(op.name)
    return replace(graph, ops=tuple(order))


class FreeForm:
    """Buffers and ops as bits of masks."""

    def __init__(self, graph: Graph, costs: Costs):
        names = list(graph.buffers)
        self.sizes = [buffer.nbytes for buffer in graph.buffers.values()]
        self.persistent = self._mask(names, [b.name for b in graph.persistent()])
        self.ops = [
            (
                self._mask(names, op.reads),
                self._mask(names, op.writes),
                op.workspace_bytes,
                costs.op(op),
                op.recompute is not None,
            )
            for op in graph.ops
        ]
        self.everything, self.costs = (1 << len(self.ops)) - 1, costs

    @staticmethod
    def _mask(names: list[str], chosen: tuple[str, ...] | list[str]) -> int:
        return sum(1 << names.index(name) for name in chosen)

    def bytes_of(self, mask: int) -> int:
        return sum(size for i, size in enumerate(self.sizes) if mask >> i & 1)

    def least_seconds(self, budget_bytes: int, host_bytes: int) -> float | None:
        """Seconds of the fastest step, None if there is none."""
        own = [1 << i for i in range(len(self.sizes)) if self.persistent >> i & 1]
        states = [sum(some) for some in chain.from_iterable(combinations(own, n) for n in range(len(own) + 1))]
        found = [self._from(state, budget_bytes, host_bytes) for state in states]
        return min((seconds for seconds in found if seconds is not None), default=None)

    def _from(self, on_host: int, budget_bytes: int, host_bytes: int) -> float | None:
        start = (0, self.persistent & ~on_host, on_host)
        best, heap = {start: 0.0}, [(0.0, start)]
        while heap:
            seconds, state = heappop(heap)
            if seconds > best[state]:
                continue
            done, device, _ = state
            if done == self.everything and not self.persistent & ~on_host & ~device:
                return seconds
            for cost, after in self._transitions(state, budget_bytes, host_bytes, on_host):
                if seconds + cost < best.get(after, float("inf")):
                    best[after] = seconds + cost
                    heappush(heap, (seconds + cost, after))
        return None

    def _transitions(self, state, budget_bytes, host_bytes, on_host):
        done, device, host = state
        bits = [1 << i for i in range(len(self.sizes))]
        for bit in bits:
            if device & bit and not bit & self.persistent & ~host:
                yield 0.0, (done, device & ~bit, host)
            if host & bit and not bit & on_host and not bit & self.persistent & ~device:
                yield 0.0, (done, device, host & ~bit)
        runs = [(0, 0, 0, 0.0, done)]
        for i, (reads, writes, workspace, seconds, again) in enumerate(self.ops):
            if not reads & ~device and not writes & device and (again or not done >> i & 1):
                runs.append((reads, writes, workspace, seconds, done | 1 << i))
        outs = [0, *(bit for bit in bits if device & ~host & bit)] if host_bytes else [0]
        backs = [0, *(bit for bit in bits if host & ~device & bit)]
        for _, writes, workspace, seconds, now in runs:
            for out in outs:
                if self.bytes_of(host | out) > host_bytes:
                    continue
                for back in backs:
                    if self.bytes_of(device | writes | back) + workspace <= budget_bytes and (
                        now != done or writes or out or back
                    ):
                        rates = self.costs.rates
                        cost = max(seconds, self.bytes_of(out) / rates.d2h, self.bytes_of(back) / rates.h2d)
                        yield cost, (now, device | writes | back, host | out)
