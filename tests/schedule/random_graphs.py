"""Small random training graphs and random plans for them, without layers or kernels.

random_graph  feeds, layers with stashes, parameters, moving averages and workspaces, their backward ops and updates
random_plan   an order with repeats, decisions, overlays and a share of copies ahead, at random but always lawful
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from layermem.graph.ops import (
    BACKWARD,
    DATA,
    DIFF,
    FORWARD,
    GRADIENT,
    HISTORY,
    PARAMETER,
    STASH,
    UPDATE,
    Buffer,
    BufferOverlay,
    Graph,
    Op,
    uses_of,
)
from layermem.layers import Tensor
from layermem.ops import Silence
from layermem.planning.costs import Costs, Rates
from layermem.planning.plan import Decision, Gap, Plan, ops_in_order, program_order

SIZES = (64, 256, 512, 512, 1024, 1024, 1984)  # bytes; few, so that overlays are often possible; not all aligned
KINDS = ("inplace", "forward", "gradient", "intra")


@dataclass
class _Build:
    rng: random.Random
    once: float
    buffers: dict[str, Buffer] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    nodes: dict[str, int] = field(default_factory=dict)  # layer -> its index

    def buffer(self, name: str, kind: str, nbytes: int, persistent: bool = False) -> str:
        self.buffers.setdefault(name, Buffer(name, kind, Tensor((nbytes // 4,)), nbytes, persistent))
        return name

    def overlay(self, out: str, over: str, kind: str) -> tuple[BufferOverlay, ...]:
        a, b = self.buffers[out], self.buffers[over]
        fits = a.nbytes == b.nbytes and not a.persistent and not b.persistent
        return (BufferOverlay(out, over, kind),) if fits and self.rng.random() < 0.7 else ()

    def op(self, name: str, kind: str, reads=(), writes=(), updates=(), **more) -> Op:
        reads = tuple(b for b in dict.fromkeys(reads) if b not in updates)
        writes = tuple(b for b in writes if b not in updates)
        roles = {f"r{i}": b for i, b in enumerate(dict.fromkeys((*reads, *updates, *writes)))}
        workspace = self.rng.choice((0, 0, 0, 200, 700))
        layer = name.rsplit(".", 1)[0]
        node = self.nodes.setdefault(layer, len(self.nodes))
        return Op(
            name, kind, Silence(), "run", roles, reads, writes, updates, workspace_bytes=workspace, node=node, **more
        )


def random_graph(rng: random.Random, layers: int = 6, *, once: float = 0.15) -> Graph:
    """A training step; layer i and its output are named "li".  `once`: fraction of layers that cannot run again."""
    build = _Build(rng, once)
    blobs = []
    for i in range(rng.choice((1, 1, 2))):
        blobs.append(build.buffer(f"data{i}", DATA, rng.choice(SIZES)))
        build.ops.append(replace(build.op(f"data{i}.forward", FORWARD, (), (blobs[-1],)), workspace_bytes=0))
    feeds = tuple(blobs)
    made = [_layer(build, i, blobs) for i in range(layers)]
    read = {b for op in build.ops for b in op.reads}
    for blob in (b for b in blobs if b not in read):
        build.ops.append(replace(build.op(f"{blob}.output", FORWARD, (blob,)), workspace_bytes=0))
    written: set[str] = set()
    for name, inputs, forward, params in reversed(made):
        _backward(build, name, [b for b in inputs if b not in feeds], forward, params, written)
    _updates(build)
    return Graph("small train", build.buffers, tuple(build.ops), "reference")


def _layer(build: _Build, i: int, blobs: list[str]) -> tuple[str, list[str], Op, list[str]]:
    rng, name = build.rng, f"l{i}"
    inputs = list(dict.fromkeys(rng.choice(blobs[-3:]) for _ in range(rng.choice((1, 1, 2)))))
    size = build.buffers[inputs[0]].nbytes if rng.random() < 0.7 else rng.choice(SIZES)
    y = build.buffer(name, DATA, size)
    params, stash, averages = [], [], []
    if rng.random() < 0.5:
        shared = rng.random() < 0.2
        params.append(build.buffer("shared.w" if shared else f"{name}.w", PARAMETER, 512, True))
    moves = rng.random() < 0.2
    if moves or rng.random() < 0.4:
        stash.append(build.buffer(f"{name}.stash", STASH, rng.choice((64, 128, 512))))
    if moves:
        averages.append(build.buffer(f"{name}.mean", PARAMETER, 64, True))
    over = build.overlay(y, inputs[0], rng.choice(("inplace", "forward")))
    op = build.op(f"{name}.forward", FORWARD, (*inputs, *params), (y, *stash), averages, overlays=over)
    if rng.random() >= build.once:
        # Like BatchNorm, whose stash is made once and read by recomputations.
        keeps = stash and (averages or rng.random() < 0.3)
        reads, writes = (*op.reads, *(stash if keeps else ())), (y, *(() if keeps else stash))
        roles = {role: b for role, b in op.roles.items() if b in {*reads, *writes}}
        op = replace(op, recompute=replace(op, roles=roles, reads=reads, writes=writes, updates=()))
    build.ops.append(op)
    blobs.append(y)
    return name, inputs, op, params


def _backward(build: _Build, name: str, inputs: list[str], forward: Op, params: list[str], written: set[str]) -> None:
    rng, dy = build.rng, f"{name}.diff"
    if not inputs and not params:
        return
    if dy not in written:
        build.buffer(dy, DIFF, build.buffers[name].nbytes)
        build.ops.append(replace(build.op(f"{name}.seed", BACKWARD, (), (dy,)), workspace_bytes=0))
        written.add(dy)
    readable = [*forward.reads, *(b for b in forward.writes)]
    targets = [build.buffer(f"{b}.diff", DIFF, build.buffers[b].nbytes) for b in inputs]
    gradients = [build.buffer(f"{b}.diff", GRADIENT, build.buffers[b].nbytes) for b in params]
    steps = [("weights", gradients), ("data", targets)] if rng.random() < 0.5 else [("backward", gradients + targets)]
    for step, outs in steps:
        if not outs:
            continue
        reads = [dy, *(b for b in readable if rng.random() < 0.5)]
        updates = tuple(b for b in outs if b in written)
        fresh = [b for b in outs if b not in written]
        overlays = tuple(
            permission
            for out in fresh
            for over in reads
            if build.buffers[out].kind == DIFF
            for permission in build.overlay(out, over, "gradient" if over == dy else "intra")
        )
        build.ops.append(build.op(f"{name}.{step}", BACKWARD, reads, fresh, updates, overlays=overlays))
        written.update(outs)


def _updates(build: _Build) -> None:
    """An update right after the last layer that touches a parameter or its gradient."""
    for name in [b.name for b in build.buffers.values() if b.kind == PARAMETER]:
        if f"{name}.diff" not in build.buffers:
            continue
        user = [op.node for op in build.ops if {name, f"{name}.diff"} & {*op.touches}][-1]
        last = max(i for i, op in enumerate(build.ops) if op.node == user and op.kind == BACKWARD)
        history = [build.buffer(f"{name}.h0", HISTORY, 512, True)] if build.rng.random() < 0.6 else []
        build.ops.insert(last + 1, build.op(f"{name}.update", UPDATE, (f"{name}.diff",), (), (name, *history)))


def random_costs(rng: random.Random, graph: Graph) -> Costs:
    """Costs in which every op takes 1 to 9 seconds; a copy of 512 bytes takes about as long, or far longer."""
    link = rng.choice((10.0, 100.0, 1000.0))
    rates = Rates(flops=1.0, memory=1.0, d2h=link, h2d=link * rng.choice((1, 3)), launch=0.1)
    return Costs(rates, {op.name: float(rng.randint(1, 9)) for op in graph.ops})


# -- plans -----------------------------------------------------------------------------------------------------


def random_plan(rng: random.Random, graph: Graph) -> Plan:
    order = _order(rng, graph)
    overlays = frozenset(kind for kind in KINDS if rng.random() < 0.7)
    copy_lead = rng.choice((0.0, 0.3, 0.5, 1.0))
    copy_limit_bytes = rng.choice((None, None, 0, 1024, 2048, 4096))
    plan = Plan("random", order, {}, overlays, copy_lead, copy_limit_bytes)
    return replace(plan, decisions=_decisions(rng, graph, order))


def _order(rng: random.Random, graph: Graph) -> tuple[str, ...]:
    """The graph's order with some forward ops run again, each before anything it reads has changed."""
    order = list(program_order(graph))
    if rng.random() < 0.3:  # updates may wait for the end of the step
        late = [name for name in order if graph.by_name[name].kind == UPDATE]
        order = [name for name in order if name not in late] + late
    for name in [op.name for op in graph.ops if op.recompute is not None]:
        for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
            recompute = graph.by_name[name].recompute
            changes = [i for i, n in enumerate(order) if {*graph.by_name[n].updates} & {*recompute.reads}]
            first, last = order.index(name) + 1, min(changes, default=len(order))
            if first <= last:
                order.insert(rng.randint(first, last), name)
    return tuple(order)


def _decisions(rng: random.Random, graph: Graph, order: tuple[str, ...]) -> dict[Gap, Decision]:
    decisions: dict[Gap, Decision] = {}
    share = rng.choice((0.0, 0.2, 0.7))
    uses = uses_of(ops_in_order(graph, order))
    for name, buffer in graph.buffers.items():
        mine = uses.get(name, [])
        for number in range(len(mine) - 1):
            if mine[number + 1].reads and rng.random() < share:
                decisions[Gap(name, number)] = Decision.OFFLOAD
            elif not mine[number + 1].reads and rng.random() < 0.1:
                decisions[Gap(name, number)] = Decision.RECOMPUTE  # implied by the order
        if buffer.persistent and rng.random() < share:
            decisions[Gap(name, -1)] = Decision.OFFLOAD
        elif not buffer.persistent and rng.random() < 0.1:
            decisions[Gap(name, -1)] = Decision.KEEP
    return decisions
