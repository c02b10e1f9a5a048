"""Graph files small enough to plan by hand, and random ones."""

from __future__ import annotations

import random

from layermem.integrations.graph_files.text_format import FileFunction, GraphFile, Variable

CHAIN = """\
5 6
0 100 _
1 100 _
2 100 _
3 7 0
4 9 /conv/W
forward
1 1
1 _
2
ReLU
{}
forward
2 1
3 _
4 _
0
Convolution2DFunction
{"sx": 1}
forward
1 1
0 _
1
ReLU
{}
backward
2 1
2 gradient
2 output
1
ReLU
{}
backward
3 1
0 gradient
3 input
4 input
4
Convolution2DFunction
{"sx": 1}
backward
2 1
1 gradient
1 output
0
ReLU
{}
"""


def graph_of(edges, sizes, convolutions=()):
    """A graph file of one function a value, in a scrambled order; values without inputs read a network input."""
    count = len(sizes)
    variables = [Variable(size, "_") for size in sizes] + [Variable(5, "0"), Variable(3, "/w")]
    forward, backward = [], []
    for v in random.Random(count).sample(range(count), count):
        reads = [u for u, w in edges if w == v] or [count, count + 1]
        kind = "Convolution2DFunction" if v in convolutions else "ReLU"
        forward.append(FileFunction("forward", kind, tuple((u, "_") for u in reads), (v,)))
        needs = ((v, "gradient"), *((u, "input") for u in reads))
        backward.append(FileFunction("backward", kind, needs, tuple(u for u in reads if u != count)))
    return GraphFile(tuple(variables), tuple(forward), tuple(backward))


def random_graph(seed):
    draw = random.Random(seed)
    count = draw.randint(1, 9)
    edges = [(u, v) for v in range(count) for u in range(v) if draw.random() < 0.35]
    return graph_of(
        edges, [draw.randint(1, 50) for _ in range(count)], {v for v in range(count) if draw.random() < 0.3}
    )
