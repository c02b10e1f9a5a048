"""Moves updates together, so that a device launches several as one (Op.joins).

    order     wgrad3 update3 wgrad2 update2 wgrad1 update1        live bytes at most as before
    joined    wgrad3 wgrad2 update3 update2 wgrad1 update1        dw3 stays a little longer

An update runs as soon as its gradient is final, which frees the gradient.  Here updates wait for each other as long as
the live bytes of the step, with their gradients, stay below the limit at every op.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from layermem.graph.ops import COMPUTE, Graph, Op
from layermem.planning.plan import Decision, Plan, ops_in_order
from layermem.planning.settings import SETTINGS
from layermem.schedule.program import Program
from layermem.utils.units import aligned


def join_updates(
    program: Program, profile: Callable[[Plan], Sequence[int]], build: Callable[[Plan, int], Program]
) -> Program:
    """`program` with updates that are launched together, if that takes no more bytes.  If all bytes are in use at many
    ops, offsets are hard to find; then a plan that leaves some bytes free is tried."""
    train = program.train
    for free_bytes in (0, *(train.max_live_bytes // divisor for divisor in SETTINGS.joined_divisors)):
        plan = with_joined_updates(train.plan, train.graph, profile(train.plan), train.max_live_bytes - free_bytes)
        if plan is train.plan:
            break
        joined = build(plan, program.arena_bytes)
        if joined.arena_bytes <= program.arena_bytes and joined.host_bytes <= program.host_bytes:
            return min(program, joined, key=lambda each: each.seconds)
    return program


def with_joined_updates(plan: Plan, graph: Graph, profile: Sequence[int], limit_bytes: int) -> Plan:
    """`plan` with updates that wait for each other while fewer than `limit_bytes` are live; `profile` has the bytes in
    use at each of its positions."""
    if not any(op.joins for op in graph.ops):
        return plan
    order = tuple(_joined(plan, graph, profile, limit_bytes))
    return plan if order == plan.order else replace(plan, order=order)


def _joined(plan: Plan, graph: Graph, profile: Sequence[int], limit_bytes: int) -> Iterator[str]:
    moved = {gap.buffer for gap, decision in plan.decisions.items() if decision is Decision.OFFLOAD}
    waiting: list[Op] = []
    held_bytes = 0
    for op, live_bytes in zip(ops_in_order(graph, plan.order), profile, strict=True):
        if op.joins and op.stream == COMPUTE and moved.isdisjoint(op.touches):
            waiting.append(op)
            held_bytes += _freed_bytes(graph, op)
            continue
        touched = {buffer for each in waiting for buffer in each.touches}
        if live_bytes + held_bytes > limit_bytes or not touched.isdisjoint(op.touches):
            yield from (each.name for each in waiting)
            waiting, held_bytes = [], 0
        yield op.name
    yield from (each.name for each in waiting)


def _freed_bytes(graph: Graph, update: Op) -> int:
    """Bytes that an update frees: its gradient."""
    return sum(aligned(graph.buffers[b].nbytes) for b in update.reads if not graph.buffers[b].persistent)
