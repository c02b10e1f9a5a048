"""The list of cases, to which the modules of families add theirs; shapes that they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.op_case import Draw, Formula, OpCase, Shape

ODD = (2, 3, 5, 3)
QUADS = (2, 4, 5, 3)  # channels that CUDA kernels read four at a time
IMAGE = (2, 6, 7, 5)
TINY = (2, 3, 2, 5)
SLIVER = (3, 4, 5, 2)
BATCH = (64, 64, 56, 56)
PICTURES = (32, 3, 224, 224)
PIXELS = (4, 21, 480, 480)
ROWS = (4096, 1000)
MAPS = (128, 256, 56, 56)
CLIP = (2, 3, 4, 4, 3)
SIZES = ("small", "medium", "edges", "timing", "gpu")
# Sizes before, along and behind the axis of an op: short rows and long ones, planes of fewer lines than a vector has
# lanes and of more, and an axis of one.
AXES = [
    (300, 3, 1), (5, 10, 1), (9, 35, 1), (900, 21, 1), (70, 1000, 1),
    (3, 7, 13), (1, 2, 40), (2, 19, 37), (1, 3, 65), (2, 1, 5),
]  # fmt: skip
# For checks of layers, which need few elements: rows and images; shapes with three channels in axis 1; shapes that are
# neither N x C nor N x C x H x W; a shape and its axis, from either end.
ROWS_AND_IMAGES: list[Shape] = [(4, 3), (2, 3, 2, 2)]
THREE_CHANNELS: list[Shape] = [(2, 3, 2, 5), (4, 3), (2, 3, 4)]
OTHER_RANKS: list[Shape] = [(4,), (2, 3, 4), (2, 3, 4, 5, 6)]
SHAPE_AND_AXIS: list[tuple[Shape, int]] = [
    ((2, 3, 2, 4), 1), ((2, 3, 2, 4), 0), ((2, 3, 2, 4), 2), ((2, 3, 2, 4), -1), ((5, 4), 1), ((3, 4, 2), 1),
]  # fmt: skip
BIG = {"medium": IMAGE, "timing": BATCH}

CASES: dict[str, OpCase] = {}


def select(size: str, *, formula: bool = False) -> list[OpCase]:
    """The cases that name this size; `formula`: those whose top has a closed form."""
    return [case for case in CASES.values() if size in case.sizes and (case.formula is not None or not formula)]


def add(name: str, text: str, *, saved: str = "", formula: Formula | None = None, **more: Any) -> None:
    """A case; the sizes are keywords, one shape or a list of them."""
    sizes: dict[str, Sequence[Shape]] = {}
    for size in SIZES:
        shapes = more.pop(size, None)
        if shapes is not None:
            sizes[size] = shapes if isinstance(shapes, list) else [shapes]
    assert name not in CASES, f"two cases are named '{name}'"
    CASES[name] = OpCase(name, text, sizes, saved=frozenset(saved.split()), formula=formula, **more)


def cases_of(kind: str, param: str = "", **same: Any) -> Callable[..., None]:
    """A function that adds cases of a type of layer, given a name, settings of its message `param`, a closed form, and
    more for add()."""

    def add_case(name: str, settings: str = "", formula: Formula | None = None, **more: Any) -> None:
        text = f"{param or kind.lower() + '_param'} {{ {settings} }}" if settings else ""
        add(name, f'type: "{kind}" {text}', formula=formula, **{**same, **more})

    return add_case


def by_shape(add_case: Callable[..., None], name: str, settings: str, shapes: Sequence[Shape], **more: Any) -> None:
    """Add a case at the edges for each of these shapes."""
    for shape in shapes:
        add_case(f"{name} over {'x'.join(map(str, shape))}", settings, edges=shape, **more)


def integers(low: int, high: int) -> Draw:
    """Whole numbers from `low` up to `high` - 1: labels, and values that are often equal."""
    return lambda rng, shape: rng.integers(low, high, shape).astype(float)


def normal(deviation: float, mean: float = 0) -> Draw:
    return lambda rng, shape: mean + deviation * rng.standard_normal(shape)


def number(value: float) -> float:
    """A number as a float field of a message holds it."""
    return float(np.float32(value))
