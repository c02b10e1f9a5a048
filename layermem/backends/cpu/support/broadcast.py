"""Broadcasts an operand of Scale and Bias over x, in the blocks that the native kernels take."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from layermem.backends.cpu.base import CpuCall, Launch
from layermem.backends.cpu.copy import reorder
from layermem.ops import Bias, Scale, Tensor
from layermem.utils.units import aligned


class Broadcast:
    """x in memory as blocks [outer][channels][inner], of which the operand spans the channels.

    shape        of each block;  outer, inner: its sizes beside the channels
    block_size   elements of x in each block
    width        elements of the operand in each block
    leading      the axes of memory before the blocks: (size, whether the operand spans it)
    own          the operand as stored
    seen         the operand with an axis for each of x, as the blocks take it.  If memory orders these differently,
                 kernels take a copy
    nbytes       aligned bytes of the operand

    With x of N x C x H x W, an operand over C makes one block, one over N x C a block per image, and one over C x H x W
    one block, with its channels last.  A slice of one item has blocks like those of a slice of several.
    """

    def __init__(self, op: Scale | Bias):
        x = op.x
        spans = [axis not in op.summed for axis in range(len(x.shape))]
        of_items = op.batch_slice is not None and spans[0]
        runs = merge_axes(x.shape, spans, keeps_first=of_items)
        inner = runs.pop()[0] if runs and not runs[-1][1] else 1
        channels = runs.pop()[0] if runs else 1
        outer = runs.pop()[0] if runs else 1
        if outer == channels == 1 and not of_items:  # one number for all of x: use rows, which threads can share
            outer, inner = inner // x.stored[-1], x.stored[-1]
        self.shape, self.outer, self.width = (outer, channels, inner), outer, channels
        self.inner = inner
        self.block_size = outer * channels * inner
        self.leading = runs
        self.own = Tensor(tuple(size for size, spanned in zip(x.shape, spans, strict=True) if spanned))
        self.seen = Tensor(op.view)
        self.nbytes = aligned(self.own.nbytes)

    @property
    def copied(self) -> bool:
        """Whether kernels take a reordered copy of the operand."""
        return not self.own.ordered_like(self.seen)

    def blocks(self) -> Iterator[tuple[int, int, bool]]:
        """Yield (bytes into x, bytes into the operand, whether an earlier block used the same part of the operand)."""
        for i, index in enumerate(product(*(range(size) for size, _ in self.leading))):
            place, repeated = 0, False
            for at, (size, spanned) in zip(index, self.leading, strict=True):
                place = place * size + at if spanned else place
                repeated |= at > 0 and not spanned
            yield 4 * i * self.block_size, 4 * place * self.width, repeated

    def operand(self, call: CpuCall, role: str | None, workspace: int) -> tuple[int, list[Launch]]:
        """The address of the operand in the order of x (in `workspace` if its own differs), and the launches before."""
        if role is None or role not in call:
            return 0, []
        if not self.copied:
            return call[role], []
        return workspace, reorder(workspace, self.seen, call[role], self.own, 0)

    def gradient(self, call: CpuCall, role: str | None, workspace: int) -> tuple[int, bool, list[Launch]]:
        """The address for a gradient of the operand, whether it accumulates there, and the launches after."""
        if role is None or role not in call:
            return 0, False, []
        if not self.copied:
            return call[role], call.accumulates(role), []
        return workspace, False, reorder(call[role], self.own, workspace, self.seen, 0, call.accumulates(role))


def merge_axes(shape: tuple[int, ...], spans: list[bool], *, keeps_first: bool = False) -> list[tuple[int, bool]]:
    """(size, spanned) of the axes of memory, without axes of size 1 except a first one that is to be kept; neighbours
    with the same `spanned` are merged."""
    runs: list[tuple[int, bool]] = []
    for axis in (0, 2, 3, 1) if len(shape) == 4 else range(len(shape)):
        if runs and runs[-1][1] == spans[axis]:
            runs[-1] = (runs[-1][0] * shape[axis], spans[axis])
        elif shape[axis] > 1 or (axis == 0 and keeps_first):
            runs.append((shape[axis], spans[axis]))
    return runs
