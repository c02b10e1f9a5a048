"""A model of data parallel training on 1 to 1,024 ranks: predicted steps and speed-ups.  Plans only; nothing runs.

    python tools/bench_scaling.py [--out docs/benchmarks/scaling.md] [--only resnet50]

Each rank computes one micro-batch of an iteration, so the batch of an iteration grows with the ranks.  The graph of one
rank is planned as `layermem plan --ranks N` plans it, and simulated on four streams: computation, copies each way, and
communication.  Of a hierarchy the slowest link counts: the ranks of a node share its network, and bytes between them do
not use it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench_strategies import machine, table

from layermem.backends.base import get_device
from layermem.distributed.ranks import Ranks
from layermem.graph.net import NetOptions
from layermem.planning.costs import Costs, model_costs
from layermem.planning.pipeline import compile
from layermem.proto.read import SolverFile, read_solver
from layermem.solver.jobs import StepOptions, solver_job
from layermem.solver.noise import nets_of_run
from layermem.utils.units import aligned

SIZES = (1, 2, 4, 8, 16, 64, 256, 1024)


class Network(NamedTuple):
    """`rate` in bytes per second of a node each way, `latency` in seconds; `per_node` ranks share it."""

    name: str
    rate: float
    latency: float
    per_node: int


ETHERNET_1 = Network("1 Gb/s Ethernet", 1.25e8, 5e-5, 1)
ETHERNET_10 = Network("10 Gb/s Ethernet", 1.25e9, 3e-5, 1)
FAST_100 = Network("100 Gb/s", 1.2e10, 5e-6, 1)
NODES_OF_8 = Network("nodes of 8, 8 x 400 Gb/s", 4e11, 5e-6, 8)
RUNS = [
    ("resnet50", 32, "cpu", "", (ETHERNET_1, ETHERNET_10)),
    ("vgg16", 16, "cpu", "", (ETHERNET_1, ETHERNET_10)),
    ("resnet50", 96, "cuda", "tf32", (FAST_100, NODES_OF_8)),
    ("vgg16", 64, "cuda", "tf32", (FAST_100, NODES_OF_8)),
]


def costs_between(title: str, network: Network, size: int) -> Costs:
    """The model of a device, with what a rank has of the network: bytes to ranks of its own node do not use it."""
    costs = model_costs(title)
    on_node = min(network.per_node, size)
    beyond = (size - on_node) / max(1, size - 1)  # share of the other ranks that are on other nodes
    rate = network.rate / on_node / beyond if beyond else network.rate
    return replace(costs, rates=replace(costs.rates, net=rate, latency=network.latency))


class Step(NamedTuple):
    seconds: float  # of a step, and of its computation alone
    compute: float
    peak: int
    state: int  # bytes of optimizer state


def step_of(net: str, batch: int, device: str, precision: str, network: Network, size: int) -> Step:
    """The step of the last of `size` ranks, one micro-batch each."""
    made = get_device(device, **({"precision": precision} if precision else {}))
    file: SolverFile = read_solver(f"prototxt/{net}/solver.prototxt")
    file.message.iter_size = size
    del file.message.test_iter[:]
    file.message.test_interval = 0
    nets = nets_of_run(file, NetOptions.of(batch), "noise")
    nets = replace(nets, all=nets.all[:1], test_iterations=())
    costs = costs_between(made.title, network, size)
    job = solver_job(file, nets, StepOptions(device=made, costs=costs), Ranks(size - 1, size, size))
    program = compile(job.graphs, strategy="liveness", costs=costs)
    state = sum(aligned(b.nbytes) for b in job.graphs[0].buffers.values() if b.kind == "history")
    return Step(program.timeline.seconds, program.timeline.compute_seconds, program.arena_bytes, state)


def rows_of(net: str, batch: int, device: str, precision: str, network: Network) -> Iterator[list[str]]:
    one = step_of(net, batch, device, precision, network, 1)
    for size in SIZES:
        step = one if size == 1 else step_of(net, batch, device, precision, network, size)
        speed = size * one.seconds / step.seconds
        yield [
            f"{size:,}",
            f"{size * batch:,}",
            f"{step.seconds * 1e3:,.1f}",
            f"{(step.seconds - step.compute) * 1e3:,.1f}",
            f"{speed:,.1f}",
            f"{100 * speed / size:.0f} %",
            f"{step.peak / 2**20:,.0f}",
            f"{step.state / 2**20:,.1f}",
        ]


def sections(only: str | None) -> Iterator[str]:
    heads = [
        "ranks",
        "images",
        "step, ms",
        "exposed, ms",
        "speed-up",
        "efficiency",
        "peak, MiB",
        "optimizer state, MiB",
    ]
    for net, batch, device, precision, networks in RUNS:
        if only in (None, net):
            for network in networks:
                title = " ".join(part for part in (net, f"x{batch}", device, precision) if part)
                yield f"## {title}, {network.name}\n\n" + "\n".join(
                    table(heads, rows_of(net, batch, device, precision, network))
                )


def page(parts: Iterable[str]) -> str:
    head = (
        "# Scaling to 1,024 ranks: a model\n\n"
        f"Made by `python tools/bench_scaling.py` on {machine()}.\n\n"
        "**Nothing here was measured**: steps are planned and simulated with modelled rates of devices and networks\n"
        "(`layermem/planning/costs.py`), strategy `liveness`. Each rank computes one micro-batch; `exposed` is what\n"
        "communication adds to the computation of a step. Of nodes with 8 ranks, the ranks share the network of their\n"
        "node; bytes within a node are taken as free. No congestion, no stragglers.\n"
    )
    return "\n\n".join([head.strip(), *parts]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only")
    args = parser.parse_args()
    text = page(sections(args.only))
    if args.out:
        args.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
