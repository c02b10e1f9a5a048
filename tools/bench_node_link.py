"""Recomputation in the order of a graph, on the graphs of Checkmate and Moccasin, at shares of the peak of that order.

python tools/bench_node_link.py FOLDER       every .json in FOLDER, such as data/ of github.com/haoming-codes/moccasin
python tools/bench_node_link.py --layered 100,250,500,1000      random layered graphs of so many nodes
--shares S    budgets, in % of the peak without recomputation (80,90)
--seed N      of the random graphs (0)

Prints, for each budget, recomputation in % of the cost of all nodes once, what Moccasin's authors published, and wall
seconds; - where no sequence was found, and "least" where none can be.  Every sequence is run by the measure of
Moccasin's code (node_link.py): "over" marks one that does not run, or not within its budget, and the exit code is 1.

The repository of those graphs states no licence, so they are not part of this one: download its data/ at commit
4da8878932a0fb7edee4ef71ac8719dfdf5d9a07.

A layered graph: layers of random width, each node reads one to four near ones of the layer before, one node in seven
is read in a later layer too; bytes and costs are random.  The shape is that of Moccasin's random graphs ("Neural
Topological Ordering for Computation Graphs", appendix A), the numbers are not.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from layermem.planning.graph_files.node_link import NodeLinkGraph, parse_node_link, read_node_link, run_sequence
from layermem.planning.graph_files.node_order import plan_order

OVER = "over"
# Recomputation in %, by budget: Bartan et al., "Moccasin: Efficient Tensor Rematerialization for Neural Networks", ICML
# 2023, the table of the poster, where these graphs are RLG2, RLG4, CM1 and CM2.
PUBLISHED = {
    "random_layered_n250_w0.43_nlv0.75_ed0.2_scd0.14": {80: "4.9", 90: "0.9"},
    "random_layered_n1000_w0.31_nlv0.75_ed0.2_scd0.14": {80: "3.4", 90: "0.7"},
    "fcn_8_vgg (MLSys)_32_(416, 608, 3)_train": {80: "0.1", 90: "0.0"},
    "ResNet50 (MLSys)_256_(224, 224, 3)_train": {80: "0.3", 90: "0.2"},
}
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


def cells(graph: NodeLinkGraph, share: int) -> tuple[str, str, str]:
    """Recomputation within a share of the peak of the order, that of Moccasin, and seconds."""
    begin, budget_bytes = time.perf_counter(), graph.order_bytes * share // 100
    sequence = plan_order(graph, budget_bytes)
    spent = f"{time.perf_counter() - begin:.2f}"
    published = PUBLISHED.get(graph.name, {}).get(share, "")
    if sequence is None:
        return "least" if budget_bytes < graph.least_bytes else "-", published, spent
    try:
        peak_bytes, cost = run_sequence(graph, sequence)
    except ValueError:
        return OVER, published, spent
    recomputed = f"{100 * (cost / graph.total_cost - 1):.2f}"
    return recomputed if peak_bytes <= budget_bytes else OVER, published, spent


def row(graph: NodeLinkGraph, shares: list[int]) -> str:
    count = f"{len(graph.bytes)}, {sum(map(len, graph.reads))}"
    return "| " + " | ".join([graph.name, count, *(cell for share in shares for cell in cells(graph, share))]) + " |"


def graphs(arguments: argparse.Namespace) -> Iterator[NodeLinkGraph]:
    for path in sorted(arguments.folder.glob("*.json")) if arguments.folder else ():
        yield read_node_link(path)
    for count in map(int, arguments.layered.split(",")) if arguments.layered else ():
        yield layered_graph(count, arguments.seed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--layered", help="numbers of nodes, separated by commas")
    parser.add_argument("--shares", default="80,90")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if not arguments.folder and not arguments.layered:
        parser.error("give a folder of .json graphs, or --layered")
    shares = [*map(int, arguments.shares.split(","))]
    columns = ["graph", "nodes, links", *(f"{share} %{more}" for share in shares for more in ("", " Moccasin", " s"))]
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns), flush=True)
    over = False
    for graph in graphs(arguments):
        print(line := row(graph, shares), flush=True)
        over |= f" {OVER} " in line
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
