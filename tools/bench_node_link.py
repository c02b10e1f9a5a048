"""Recomputation in the order of a graph, on the graphs of Checkmate and Moccasin, at shares of the peak of that order.

python tools/bench_node_link.py FOLDER       every .json in FOLDER, such as data/ of github.com/haoming-codes/moccasin
python tools/bench_node_link.py --layered 100,250,500      random layered graphs of so many nodes
--shares S    budgets, in % of the peak without recomputation (80,90)
--seed N      of the random graphs (0)

Prints recomputation in % of the cost of all nodes once; - where no sequence was found, and "least" where none can be.

A layered graph: layers of random width, each node reads one to four near ones of the layer before, one node in seven
is read in a later layer too; bytes and costs are random.  The shape is that of Moccasin's random graphs ("Neural
Topological Ordering for Computation Graphs", appendix A), the numbers are not.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from layermem.planning.graph_files.node_link import NodeLinkGraph, parse_node_link, read_node_link, run_sequence
from layermem.planning.graph_files.splitting import plan_order

NEAR, SKIPS = 0.4, 1 / 7  # chances of a link to a node beside the nearest one, and of one to a later layer


def layers_of(count: int, draw: random.Random) -> list[list[int]]:
    """Nodes by layer: one first, one last, and layers of about half the root of their number."""
    width, layers, first = max(1, round(count**0.5 / 2)), [[0]], 1
    while first < count - 1:
        wide = min(draw.randint(max(1, width // 2), 2 * width), count - 1 - first)
        layers.append([*range(first, first + wide)])
        first += wide
    return [*layers, [count - 1]]


def layered_graph(count: int, seed: int) -> NodeLinkGraph:
    draw = random.Random(seed)
    layers, links = layers_of(count, draw), set[tuple[int, int]]()
    for before, layer in pairwise(layers):
        for i, node in enumerate(layer):
            nearest = i * len(before) // len(layer)
            near = [j for j in (nearest - 1, nearest + 1, nearest + 2) if 0 <= j < len(before) and draw.random() < NEAR]
            links |= {(before[j], node) for j in (nearest, *near)}
        for i, node in enumerate(before):
            if not any((node, reader) in links for reader in layer):
                links.add((node, layer[min(len(layer) - 1, i * len(layer) // len(before))]))
    for i, layer in enumerate(layers[:-2]):
        links |= {(node, draw.choice(draw.choice(layers[i + 2 :]))) for node in layer if draw.random() < SKIPS}
    nodes = [
        {"out_cost": draw.choice((1, 1, 2, 3, 5)) * draw.randint(80, 1300), "duration": draw.randint(0, 1000)}
        for _ in range(count)
    ]
    graph = {"name": f"layered {count}"}
    return parse_node_link(
        json.dumps({"graph": graph, "nodes": nodes, "links": [{"0": a, "1": b} for a, b in sorted(links)]})
    )


def row(graph: NodeLinkGraph, shares: list[int]) -> str:
    begin, cells = time.perf_counter(), []
    for share in shares:
        budget_bytes = graph.order_bytes * share // 100
        sequence = plan_order(graph, budget_bytes)
        if sequence is None:
            cells.append("least" if budget_bytes < graph.least_bytes else "-")
        else:
            cells.append(f"{100 * (run_sequence(graph, sequence)[1] / graph.total_cost - 1):.2f}")
    spent = f"{(time.perf_counter() - begin) / len(shares):.2f}"
    return "| " + " | ".join([graph.name, str(len(graph.bytes)), *cells, spent]) + " |"


def graphs(arguments: argparse.Namespace) -> Iterator[NodeLinkGraph]:
    for path in sorted(arguments.folder.glob("*.json")) if arguments.folder else ():
        yield read_node_link(path)
    for count in map(int, arguments.layered.split(",")) if arguments.layered else ():
        yield layered_graph(count, arguments.seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--layered", help="numbers of nodes, separated by commas")
    parser.add_argument("--shares", default="80,90")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if not arguments.folder and not arguments.layered:
        parser.error("give a folder of .json graphs, or --layered")
    shares = [*map(int, arguments.shares.split(","))]
    columns = ["graph", "nodes", *(f"{share} %" for share in shares), "seconds per budget"]
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns), flush=True)
    for graph in graphs(arguments):
        print(row(graph, shares), flush=True)


if __name__ == "__main__":
    main()
