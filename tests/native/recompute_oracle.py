"""A slow, simple oracle of the recomputation planner, made of sets and loops.

A graph is made of random lists, which are also passed to the native StepGraph.
"""

import random
from dataclasses import dataclass, field
from itertools import combinations

from layermem._native import StepGraph


@dataclass
class StepGraphOracle:
    """Lists of dicts; ids are positions.  See planning/step_graph.h for the words."""

    values: list = field(default_factory=list)  # bytes, kept, producer (None: an input)
    nodes: list = field(default_factory=list)  # reads, writes, time, recompute_time, workspace_bytes, overlays
    grads: list = field(default_factory=list)  # bytes, final
    steps: list = field(default_factory=list)  # owner, values, reads, writes, workspace_bytes, over_values, over_grads

    def native(self):
        graph = StepGraph()
        for value in self.values:
            graph.add_value(value["bytes"], value["kept"])
        for node in self.nodes:
            graph.add_node(**node)
        for grad in self.grads:
            graph.add_gradient(grad["bytes"], grad["final"])
        for step in self.steps:
            graph.add_step(**step)
        graph.finish()
        return graph

    def before(self, node):
        return {self.values[x]["producer"] for x in self.nodes[node]["reads"]} - {None}

    def after(self, node):
        return {v for v in range(len(self.nodes)) if node in self.before(v)}

    def readers(self, value):
        return {v for v, node in enumerate(self.nodes) if value in node["reads"]}

    def back_owners(self, value):
        return {step["owner"] for step in self.steps if value in step["values"]}

    def lower_sets(self):
        count = len(self.nodes)
        before = [self.before(v) for v in range(count)]
        sets = []
        for mask in range(1 << count):
            members = frozenset(v for v in range(count) if mask >> v & 1)
            if all(before[v] <= members for v in members):
                sets.append(members)
        return sorted(sets, key=len)

    def bytes_of(self, items):
        return sum((self.values if kind == "value" else self.grads)[i]["bytes"] for kind, i in items)


def random_oracle(seed, most=8):
    """Nodes that write one or two values, some inputs, kept values, stashes, workspaces and overlays."""
    draw = random.Random(seed)
    oracle = StepGraphOracle()
    count = draw.randint(1, most)
    density = draw.choice((0.2, 0.4, 0.7))
    for _ in range(draw.choice((0, 0, 1, 2))):
        oracle.values.append({"bytes": draw.randint(0, 9), "kept": False, "producer": None})
    edges = {pair for pair in combinations(range(count), 2) if draw.random() < density}
    main, stash = [], []
    for node in range(count):
        reads = sorted({main[u] for u, v in edges if v == node})
        reads += [x for x, value in enumerate(oracle.values) if value["producer"] is None and draw.random() < 0.3]
        main.append(_new_value(oracle, draw, node, kept=draw.random() < 0.05))
        stash.append(_new_value(oracle, draw, node, kept=draw.random() < 0.3) if draw.random() < 0.3 else None)
        writes = [x for x in (main[node], stash[node]) if x is not None]
        time = draw.choice((1, 1, 2, 10))
        over = [(main[node], x) for x in reads if draw.random() < 0.2]
        oracle.nodes.append(
            {
                "reads": reads,
                "writes": writes,
                "time": time,
                "workspace_bytes": draw.choice((0, 0, 0, 5)),
                "overlays": over,
            }
        )
        oracle.nodes[-1]["recompute_time"] = draw.choice((time, time, time + 1, 0))
    _add_backward(oracle, draw, main, stash)
    return oracle


def _new_value(oracle, draw, producer, kept):
    oracle.values.append({"bytes": draw.randint(0, 9), "kept": kept, "producer": producer})
    return len(oracle.values) - 1


def _add_backward(oracle, draw, main, stash):
    """Add one or two steps per node, which read the gradient of its output and add to those of its inputs."""
    gradient = {}
    for x in main:
        gradient[x] = len(oracle.grads)
        oracle.grads.append({"bytes": oracle.values[x]["bytes"], "final": False})
    written = set()
    for node in reversed(range(len(oracle.nodes))):
        reads = oracle.nodes[node]["reads"]
        mine = gradient[main[node]]
        if mine not in written:
            oracle.steps.append(_step(node, [], [], [mine]))
            written.add(mine)
        wanted = [gradient[x] for x in reads if x in gradient]
        if draw.random() < 0.3:
            oracle.grads.append({"bytes": draw.randint(0, 5), "final": draw.random() < 0.5})
            data = [x for x in (*reads, main[node]) if draw.random() < 0.4]
            oracle.steps.append(_step(node, data, [mine], [len(oracle.grads) - 1]))
        data = [x for x in (*reads, main[node]) if draw.random() < 0.4]
        data += [x for x in [stash[node]] if x is not None and draw.random() < 0.8]
        data += [x for x in main if draw.random() < 0.05]
        step = _step(node, data, [mine], wanted)
        step["workspace_bytes"] = draw.choice((0, 0, 0, 5))
        step["over_values"] = [(g, x) for g in wanted for x in data if draw.random() < 0.2]
        step["over_grads"] = [(g, mine) for g in wanted if draw.random() < 0.2]
        oracle.steps.append(step)
        written |= set(wanted)


def _step(owner, values, reads, writes):
    return {
        "owner": owner,
        "values": sorted(set(values)),
        "reads": reads,
        "writes": writes,
        "workspace_bytes": 0,
        "over_values": [],
        "over_grads": [],
    }
