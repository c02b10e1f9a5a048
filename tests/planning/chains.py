"""A chain of layers small enough to plan by hand.

    forward    feed -> x0 -f1-> x1 -f2-> ... -fn-> xn
    backward   seed reads xn and writes dn;  bi reads di and x(i-1), and writes d(i-1)
    order      feed.forward f1.forward ... fn.forward seed.backward bn.backward ... b1.backward

Every blob takes UNIT bytes and every op a second; all forward ops but the feed can run again.  Keeping everything takes
n + 2 units: x0 ... xn and dn at the seed, then x0 ... x(i-1), di and d(i-1) at bi.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from layermem.graph.ops import BACKWARD, DATA, DIFF, FORWARD, GRADIENT, HISTORY, PARAMETER, UPDATE, BufferOverlay, Graph
from layermem.planning.costs import Costs, Rates
from layermem.planning.hints import Hints
from layermem.planning.plan import Plan
from layermem.planning.strategies import get_strategy
from layermem.schedule.arena_planner import ArenaPlanner
from tests.schedule.small_graphs import buffer, graph, op, repeatable

UNIT = 1024


def chain(layers: int, *, overlays: bool = False, parameters: bool = False, joins: str = "") -> Graph:
    """overlays    gradients may lie over the activations that are read for the last time with them
    parameters  a layer i has wi and its history hi, and an update after its backward
    joins       the kind of these updates, if a device may launch several as one
    """
    blobs = [
        buffer(f"{letter}{i}", kind, UNIT) for letter, kind in (("x", DATA), ("d", DIFF)) for i in range(layers + 1)
    ]
    weights = [
        buffer(f"{letter}{i}", kind, UNIT)
        for i in range(1, layers + 1 if parameters else 1)
        for letter, kind in (("w", PARAMETER), ("h", HISTORY), ("g", GRADIENT))
    ]

    def over(out: str, data: str) -> tuple[BufferOverlay, ...]:
        return (BufferOverlay(out, data, "intra"),) if overlays else ()

    ops = [op("feed.forward", FORWARD, writes="x0", node=0)]
    for i in range(1, layers + 1):
        own = f" w{i}" if parameters else ""
        ops.append(repeatable(op(f"f{i}.forward", FORWARD, f"x{i - 1}{own}", f"x{i}", node=i)))
    ops.append(op("seed.backward", BACKWARD, f"x{layers}", f"d{layers}", overlays=over(f"d{layers}", f"x{layers}")))
    for i in range(layers, 0, -1):
        own, grown = (f" w{i}", f" g{i}") if parameters else ("", "")
        back = op(f"b{i}.backward", BACKWARD, f"d{i} x{i - 1}{own}", f"d{i - 1}{grown}", node=i)
        ops.append(replace(back, overlays=over(f"d{i - 1}", f"x{i - 1}")))
        if parameters:
            ops.append(op(f"f{i}.update", UPDATE, f"g{i}", updates=f"w{i} h{i}", joins=joins))
    return graph([*blobs, *weights], ops)


def a_second_each(net: Graph, link: float = UNIT, launch: float = 0.0) -> Costs:
    """`link` is in bytes a second, each way.  An update that may be joined takes `launch` seconds, and none with its
    launch joined."""
    rates = Rates(flops=inf, memory=inf, d2h=link, h2d=link, launch=launch)
    return Costs(rates, {op.name: 1.0 for op in net.ops if not op.joins})


class Planned:
    """A strategy's plan of a graph, with its live bytes in UNITs."""

    def __init__(
        self,
        name: str,
        net: Graph,
        budget: float | None = None,
        *,
        link: float = UNIT,
        launch: float = 0.0,
        hints: Hints = Hints(),
    ):
        costs = a_second_each(net, link, launch)
        self.evaluator = ArenaPlanner([net], costs)
        nbytes = None if budget is None else int(budget * UNIT)
        self.plan: Plan = get_strategy(name).make(net, costs, nbytes, self.evaluator, hints)
        self.units = self.evaluator.live_bytes(self.plan) / UNIT
        self.seconds = self.evaluator.estimate_seconds(self.plan)

    @property
    def repeated(self) -> list[str]:
        """Ops that run again, in the order in which they do."""
        order = self.plan.order
        return [name for position, name in enumerate(order) if name in order[:position]]
