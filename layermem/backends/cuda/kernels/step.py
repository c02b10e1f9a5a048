"""What a step needs beside layers: gradients that begin with a number, and the norm of all gradients."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from layermem.backends.cuda.kernels.channels import BLOCKS, FLOAT, Columns, channel_sums
from layermem.backends.cuda.launch import Addresses, Launch, Scratch, ceil_div, kernel, launch, workspace


def fill(y: int, count: int, value: float) -> Launch:
    return launch("step", "fill", "FillArgs", ceil_div(count, 1024), y=y, count=count, value=value)


@kernel("Fill.seed")
def seed(loss_weight: float, b: Addresses) -> Iterator[Launch]:
    yield fill(b["y0"], b.count("y0"), loss_weight)


@kernel("Fill.zero")
def zero(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield fill(b["y0"], b.count("y0"), 0.0)


@kernel("Clip.norm")
def norm(layer: Any, b: Addresses) -> Iterator[Launch]:
    """L2 norm over x0, x1, ..: sums of squares part by part, all parts in one row."""
    scratch, gradients = Scratch(b["workspace"]), b.numbered("x")
    parts, total = scratch.take(FLOAT * BLOCKS * len(gradients)), 0
    for i, x in enumerate(gradients):
        at = Columns(b.count(f"x{i}"), 1)
        yield launch(
            "step", "square_sums", "SquareSumsArgs", at.grid(at.parts), parts=parts + FLOAT * total, x=x,
            at=at.struct(),
        )  # fmt: skip
        total += at.parts
    square = scratch.take(FLOAT)
    yield from channel_sums(Columns(total, 1), square, parts, False, scratch.next)
    yield launch("step", "square_root", "SquareRootArgs", 1, 1, y=b["y0"], x=square)


@workspace("Clip.norm")
def norm_bytes(layer: Any, roles: Collection[str]) -> int:
    scratch, gradients = Scratch(), sum(role.startswith("x") for role in roles)
    scratch.take(FLOAT * BLOCKS * gradients)
    scratch.take(FLOAT)
    scratch.take(FLOAT * BLOCKS)  # for the parts of the parts
    return scratch.nbytes
