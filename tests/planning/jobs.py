"""Graphs for tests of strategies: those of a solver over a tiny net, and random ones."""

from __future__ import annotations

import random
from pathlib import Path

from layermem.graph.ops import Graph
from layermem.planning.costs import Costs, model_costs
from layermem.planning.strategies import STRATEGIES as REGISTERED
from layermem.solver import jobs
from layermem.solver.build import build_nets
from layermem.solver.jobs import StepOptions
from tests.nets import solver_file
from tests.schedule.random_graphs import random_costs, random_graph

SINGLE = tuple(name for name, entry in REGISTERED.items() if not entry.combines_others)
STRATEGIES = tuple(REGISTERED)

Job = tuple[list[Graph], Costs]


def solver_job(net: str, folder: Path, **fields: object) -> Job:
    """Train step, updates if iter_size > 1, and test net, on the reference device."""
    file = solver_file(net, folder, **fields)
    return [*jobs.solver_job(file, build_nets(file), StepOptions(device="reference")).graphs], model_costs("reference")


def random_job(seed: int, most: int = 12) -> Job:
    rng = random.Random(seed)
    graph = random_graph(rng, rng.randint(2, most), once=0)
    return [graph], random_costs(rng, graph)
