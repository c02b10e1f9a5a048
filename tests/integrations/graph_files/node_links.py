"""Small graphs in the form of Checkmate's and Moccasin's files."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence

from layermem.integrations.graph_files.node_link import NodeLinkGraph, parse_node_link


def chain_text(layers: int) -> str:
    """A training graph of a chain: backward i reads the outputs of forward i - 1 and i, and the backward after it."""
    last = 2 * layers - 1
    links = [(i, i + 1) for i in range(last)]
    links += [(i, last - i) for i in range(layers - 1)] + [(i, last - i - 1) for i in range(layers - 1)]
    nodes = [{"name": f"n{i}", "backward": i >= layers, "cost_cpu": 1, "cost_ram": 8, "id": i} for i in range(last + 1)]
    return json.dumps(
        {
            "directed": True,
            "multigraph": False,
            "graph": {"name": f"chain{layers}"},
            "nodes": nodes,
            "links": [{"source": a, "target": b} for a, b in sorted(set(links))],
        }
    )


def chain(layers: int) -> NodeLinkGraph:
    return parse_node_link(chain_text(layers))


def graph_text(sizes: Sequence[int], costs: Sequence[int], links: Iterable[tuple[int, int]]) -> str:
    """Nodes by their bytes and costs."""
    nodes = [{"cost_ram": size, "cost_cpu": cost} for size, cost in zip(sizes, costs)]
    return json.dumps({"nodes": nodes, "links": [{"source": a, "target": b} for a, b in links]})


def random_graph(seed: int, count: int) -> NodeLinkGraph:
    """Nodes that read up to three of the twelve before them."""
    draw = random.Random(seed)
    links = {
        (draw.randrange(max(0, node - 12), node), node) for node in range(1, count) for _ in range(draw.randint(1, 3))
    }
    sizes, costs = zip(*((draw.randint(1, 60), draw.randint(0, 9)) for _ in range(count)))
    return parse_node_link(graph_text(sizes, costs, sorted(links)))
