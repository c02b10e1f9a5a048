"""Graphs and schedules small enough to follow by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from layermem.graph.ops import (
    BACKWARD,
    DATA,
    DIFF,
    FORWARD,
    GRADIENT,
    HISTORY,
    PARAMETER,
    UPDATE,
    Buffer,
    BufferOverlay,
    Graph,
    Op,
)
from layermem.layers import Tensor
from layermem.ops import Silence
from layermem.planning.costs import Costs, Rates
from layermem.planning.plan import REUSE, Decision, Gap, Plan
from layermem.schedule.ir import Schedule
from layermem.schedule.layout import Layout
from layermem.schedule.lower import lower
from layermem.schedule.place import place

LINK = Rates(flops=1, memory=1, d2h=256, h2d=256, launch=0)  # 256 bytes a second each way


def buffer(name: str, kind: str, nbytes: int) -> Buffer:
    return Buffer(name, kind, Tensor((nbytes // 4,)), nbytes, kind in (PARAMETER, HISTORY))


def op(name: str, kind: str, reads: str = "", writes: str = "", updates: str = "", **more: object) -> Op:
    lists = [tuple(names.split()) for names in (reads, writes, updates)]
    roles = {f"r{i}": b for i, b in enumerate(dict.fromkeys(sum(lists, ())))}
    return Op(name, kind, Silence(), "run", roles, *lists, **more)


def repeatable(each: Op) -> Op:
    """The op with itself as its recomputation."""
    return replace(each, recompute=each)


def graph(buffers: Iterable[Buffer], ops: Iterable[Op]) -> Graph:
    return Graph("small train", {b.name: b for b in buffers}, tuple(ops), "reference")


def small_graph() -> Graph:
    """x -> a = a(x, w) -> b = b(a), with one parameter and its history; every buffer takes 512 bytes.

    Only a reads w; b may overlay a, and a.diff may overlay b.diff; a needs 300 bytes of workspace.
    """
    kinds = {"x": DATA, "w": PARAMETER, "a": DATA, "b": DATA, "b.diff": DIFF, "a.diff": DIFF, "w.diff": GRADIENT}
    return graph(
        [buffer(name, kind, 512) for name, kind in {**kinds, "h": HISTORY}.items()],
        [
            op("x.forward", FORWARD, writes="x"),
            repeatable(op("a.forward", FORWARD, "x w", "a", workspace_bytes=300)),
            repeatable(op("b.forward", FORWARD, "a", "b", overlays=(BufferOverlay("b", "a", "forward"),))),
            op("b.output", FORWARD, "b"),
            op("b.seed", BACKWARD, writes="b.diff"),
            op("b.backward", BACKWARD, "b b.diff", "a.diff", overlays=(BufferOverlay("a.diff", "b.diff", "gradient"),)),
            op("a.weights", BACKWARD, "x a.diff", "w.diff"),
            op("w.update", UPDATE, "w.diff", updates="w h"),
        ],
    )


def graph_with_a_fused_update() -> Graph:
    """small_graph with an op that is offered for the last two."""
    apart = small_graph()
    fused = op("a.backward_update", BACKWARD, "x a.diff", updates="w h", covers=("a.weights", "w.update"))
    return replace(apart, fused_updates=(fused,))


def small_plan() -> Plan:
    """A plan in which b is computed twice, x is offloaded between its uses, and h is on the host."""
    forward = ["x.forward", "a.forward", "b.forward", "b.output", "b.seed"]
    order = [*forward, "a.forward", "b.forward", "b.backward", "a.weights", "w.update"]
    decisions = {Gap("x", 1): Decision.OFFLOAD, Gap("h", -1): Decision.OFFLOAD}
    return Plan("by hand", tuple(order), decisions, REUSE, copy_lead=1.0)


def a_second_each(graph: Graph) -> Costs:
    """Costs in which every op takes a second, and a copy of 512 bytes two."""
    return Costs(LINK, {op.name: 1.0 for op in graph.ops})


def scheduled(graph: Graph, plan: Plan, costs: Costs | None = None) -> Schedule:
    return place(lower(Layout(graph, costs or a_second_each(graph)), plan))
