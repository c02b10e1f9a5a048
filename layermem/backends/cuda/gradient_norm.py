"""Gradient norm: the L2 norm over all gradients, which gradient clipping compares with its limit."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from layermem.backends.cuda.channel_sums import BLOCKS, FLOAT, Columns, channel_sums
from layermem.backends.cuda.launch import Addresses, Launch, Workspace, kernel, launch, workspace_bytes


@kernel("Clip.norm")
def norm(layer: Any, b: Addresses) -> Iterator[Launch]:
    """L2 norm over x0, x1, ..: sums of squares part by part, all parts in one row."""
    workspace, gradients = Workspace(b["workspace"]), b.numbered("x")
    parts, total = workspace.take(FLOAT * BLOCKS * len(gradients)), 0
    for i, x in enumerate(gradients):
        at = Columns(b.count(f"x{i}"), 1)
        yield launch(
            "gradient_norm", "square_sums", "SquareSumsArgs", at.grid(at.parts), parts=parts + FLOAT * total, x=x,
            at=at.struct(),
        )  # fmt: skip
        total += at.parts
    square = workspace.take(FLOAT)
    yield from channel_sums(Columns(total, 1), square, parts, False, workspace.next)
    yield launch("gradient_norm", "square_root", "SquareRootArgs", 1, 1, y=b["y0"], x=square)


@workspace_bytes("Clip.norm")
def norm_bytes(layer: Any, roles: Collection[str]) -> int:
    workspace, gradients = Workspace(), sum(role.startswith("x") for role in roles)
    workspace.take(FLOAT * BLOCKS * gradients)
    workspace.take(FLOAT)
    workspace.take(FLOAT * BLOCKS)  # for the parts of the parts
    return workspace.nbytes
