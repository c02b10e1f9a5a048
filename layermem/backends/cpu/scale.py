"""Scale and Bias: x against an operand that spans some of its axes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import product
from math import prod
from typing import Any

from layermem._native import cpu
from layermem.backends.cpu.base import Args, Launch, binds
from layermem.backends.cpu.elements import copy_unless_same
from layermem.backends.cpu.moves import padded


class Span:
    """x in memory as blocks that the kernels take: [outer][channels][inner], of which the operand spans the channels.

    channels  the geometry of each block
    leading   the axes of memory before it: (size, does the operand span it?)
    turned    (n, c, rest) where the operand has its channels before the pixels that it spans, and x has them behind
    nbytes    of the operand, padded

    Of N x C x H x W an operand over C is one block, one over N x C a block for each image, one over C x H x W one
    block, once it is turned.
    """

    def __init__(self, layer: Any):
        x = layer.bottoms[0]
        spans = [axis not in layer.summed for axis in range(len(x.shape))]
        runs: list[tuple[int, bool]] = []
        for axis in (0, 2, 3, 1) if len(x.shape) == 4 else range(len(x.shape)):
            size = x.shape[axis]
            if runs and runs[-1][1] == spans[axis]:
                runs[-1] = (runs[-1][0] * size, spans[axis])
            elif size > 1:
                runs.append((size, spans[axis]))
        inner = runs.pop()[0] if runs and not runs[-1][1] else 1
        channels = runs.pop()[0] if runs else 1
        outer = runs.pop()[0] if runs else 1
        if outer == channels == 1:  # one number for all: lines that can be shared out
            outer, inner = inner // x.stored[-1], x.stored[-1]
        self.channels, self.size, self.width = cpu.Channels(outer, channels, inner), outer * channels * inner, channels
        self.leading = runs
        self.turned = self._turned(x.shape, spans)
        self.nbytes = padded(4 * prod(d for d, spanned in zip(x.shape, spans) if spanned))

    @staticmethod
    def _turned(shape: tuple[int, ...], spans: list[bool]) -> tuple[int, int, int] | None:
        if len(shape) != 4 or all(spans) or not spans[1]:
            return None
        rest = prod(shape[axis] for axis in (2, 3) if spans[axis])
        return (shape[0] if spans[0] else 1, shape[1], rest) if shape[1] > 1 and rest > 1 else None

    def blocks(self) -> Iterator[tuple[int, int, bool]]:
        """Bytes into x, bytes into the operand, and whether an earlier block has met that part of the operand."""
        for i, index in enumerate(product(*(range(size) for size, _ in self.leading))):
            place, again = 0, False
            for at, (size, spanned) in zip(index, self.leading):
                place = place * size + at if spanned else place
                again |= at > 0 and not spanned
            yield 4 * i * self.size, 4 * place * self.width, again

    def taken(self, a: Args, role: str | None, room: int) -> tuple[int, list[Launch]]:
        """The operand in the order of x, in `room` if it has another."""
        if role is None or not a.has(role):
            return 0, []
        if self.turned is None:
            return a[role], []
        return room, [cpu.transpose(*self.turned, out=room, x=a[role])]

    def given(self, a: Args, role: str | None, room: int) -> tuple[int, bool, list[Launch]]:
        """Where a gradient of the operand goes, whether it is added there, and what brings it home."""
        if role is None or not a.has(role):
            return 0, False, []
        if self.turned is None:
            return a[role], a.adds(role), []
        n, c, rest = self.turned
        return room, False, [cpu.transpose(n, rest, c, out=a[role], x=room, accumulate=a.adds(role))]


def at(address: int, offset: int) -> int:
    """None stays none."""
    return address + offset if address else 0


def forward_scratch(layer: Any, roles: Collection[str]) -> int:
    span = Span(layer)
    return 2 * span.nbytes if span.turned else 0


def backward_scratch(layer: Any, roles: Collection[str]) -> int:
    span = Span(layer)
    return int(cpu.scale_backward_workspace(span.channels)) + (3 * span.nbytes if span.turned else 0)


@binds("Scale.forward", scratch=forward_scratch)
def scale_forward(a: Args) -> list[Launch]:
    it, span = a.layer, Span(a.layer)
    factor, before = span.taken(a, it.operand, a.scratch)
    bias, more = span.taken(a, it.bias, a.scratch + span.nbytes)
    blocks = [
        cpu.scale_forward(span.channels, y=a["y0"] + i, x=a["x0"] + i, factor=factor + w, bias=at(bias, w))
        for i, w, _ in span.blocks()
    ]
    return [*before, *more, *blocks]


@binds("Bias.forward", scratch=forward_scratch)
def bias_forward(a: Args) -> list[Launch]:
    span = Span(a.layer)
    bias, before = span.taken(a, a.layer.operand, a.scratch)
    return before + [
        cpu.bias_forward(span.channels, y=a["y0"] + i, x=a["x0"] + i, bias=bias + w) for i, w, _ in span.blocks()
    ]


@binds("Scale.backward", scratch=backward_scratch)
def scale_backward(a: Args) -> list[Launch]:
    it, span = a.layer, Span(a.layer)
    room = a.scratch + int(cpu.scale_backward_workspace(span.channels))
    factor, before = span.taken(a, it.operand, room)
    dfactor, adds_factor, after = span.given(a, f"d{it.operand}", room + span.nbytes)
    dbias, adds_bias, more = span.given(a, it.bias and f"d{it.bias}", room + 2 * span.nbytes)
    blocks = [
        cpu.scale_backward(
            span.channels, dx=at(a["dx0"], i), dfactor=at(dfactor, w), dbias=at(dbias, w), x=at(a["x0"], i),
            dy=a["dy0"] + i, factor=at(factor, w), accumulate_dx=a.adds("dx0"), accumulate_dfactor=adds_factor or again,
            accumulate_dbias=adds_bias or again, scratch=a.scratch,
        )
        for i, w, again in span.blocks()
    ]  # fmt: skip
    return [*before, *blocks, *after, *more]


@binds("Bias.backward", scratch=backward_scratch)
def bias_backward(a: Args) -> list[Launch]:
    span = Span(a.layer)
    room = a.scratch + int(cpu.scale_backward_workspace(span.channels))
    dbias, adds, after = span.given(a, f"d{a.layer.operand}", room)
    launches: list[Launch] = []
    if dbias:
        launches += [
            cpu.scale_backward(
                span.channels, dbias=dbias + w, dy=a["dy0"] + i, accumulate_dbias=adds or again, scratch=a.scratch
            )
            for i, w, again in span.blocks()
        ]
    return [*launches, *after, *(copy_unless_same(a, "dx0", "dy0") if a.has("dx0") else [])]
