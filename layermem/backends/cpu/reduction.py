"""Reduction and ArgMax: many elements become few."""

from __future__ import annotations

from collections.abc import Collection
from math import prod
from typing import Any

from layermem._native import cpu
from layermem.backends.cpu.base import Args, Launch, binds
from layermem.backends.cpu.moves import arranged, arranged_bytes, padded, reordered
from layermem.layers import Tensor

TERMS = {"SUM": "plain", "MEAN": "plain", "ASUM": "absolute", "SUMSQ": "square"}


def reduced(layer: Any) -> Any:
    """All axes from `along` on as one: in memory they lie between those before it and, of an image, the channels."""
    shape, along = layer.bottoms[0].shape, layer.along
    if len(shape) != 4 or along < 2:
        return cpu.Axis(prod(shape[:along]), prod(shape[along:]), 1)
    n, c, h, w = shape
    return cpu.Axis(n, h * w, c) if along == 2 else cpu.Axis(n * h, w, c)


def summed(layer: Any) -> Tensor:
    """The top as the sums lie in memory: of N x C x H x W along the last axis they are [N, H, C]."""
    y = layer.tops[0]
    return Tensor((*y.shape, 1)) if len(layer.bottoms[0].shape) == 4 and layer.along == 3 else y


def reduction_bytes(layer: Any) -> int:
    return int(cpu.reduce_workspace(reduced(layer)))


def reduction_scratch(layer: Any, roles: Collection[str]) -> int:
    return reduction_bytes(layer) + arranged_bytes(layer.tops[0], summed(layer))


@binds("Reduction.forward", scratch=reduction_scratch)
def reduction_forward(a: Args) -> list[Launch]:
    it, sums, at = a.layer, summed(a.layer), reduction_bytes(a.layer)
    turned = not sums.ordered_like(it.tops[0])
    y = a.scratch + at if turned else a["y0"]
    launch = cpu.reduce(reduced(it), TERMS[it.operation], y=y, x=a["x0"], factor=it.factor, scratch=a.scratch)
    return [launch, *(reordered(a["y0"], it.tops[0], y, sums, 0) if turned else [])]


@binds("Reduction.backward", scratch=reduction_scratch)
def reduction_backward(a: Args) -> list[Launch]:
    it = a.layer
    dy, before = arranged(a, "dy0", it.tops[0], summed(it), reduction_bytes(it))
    launch = cpu.reduce_backward(
        reduced(it), TERMS[it.operation], dx=a["dx0"], x=a["x0"], dy=dy, factor=it.factor, accumulate=a.adds("dx0")
    )
    return [*before, launch]


# -- ArgMax ------------------------------------------------------------------------------------------------------------
#
# Rows are searched, so what is compared must lie side by side: of x as it lies, or of a copy in scratch.


def rows(layer: Any) -> tuple[int, int, int]:
    """(outer, size, inner) of the axis in memory; of whole items in Caffe's order."""
    x = layer.bottoms[0]
    return (x.shape[0], prod(x.shape[1:]), 1) if layer.along is None else x.around(layer.along)


def flat(layer: Any) -> Tensor:
    return Tensor((layer.bottoms[0].shape[0], rows(layer)[1]))


def copy_bytes(layer: Any) -> int:
    x = layer.bottoms[0]
    if layer.along is None:
        return arranged_bytes(x, flat(layer))
    return padded(x.nbytes) if rows(layer)[2] > 1 else 0


def both(layer: Any) -> Tensor | None:
    """The top where it has places and values, in the order in which they are found."""
    return Tensor(layer.tops[0].shape[:3]) if layer.along is None and layer.with_values else None


def argmax_scratch(layer: Any, roles: Collection[str]) -> int:
    found = both(layer)
    turned = arranged_bytes(layer.tops[0], found) if found is not None else 0
    return int(cpu.largest_workspace(layer.top_k)) + copy_bytes(layer) + turned


@binds("ArgMax.forward", scratch=argmax_scratch)
def argmax(a: Args) -> list[Launch]:
    it, k = a.layer, a.layer.top_k
    outer, size, inner = rows(it)
    at = int(cpu.largest_workspace(k))
    if it.along is None:
        x, launches = arranged(a, "x0", it.bottoms[0], flat(it), at)
    elif inner == 1:
        x, launches = a["x0"], []
    else:
        x = a.scratch + at
        launches = [cpu.transpose(outer, size, inner, out=x, x=a["x0"])]
    search = {"x": x, "inner": inner, "scratch": a.scratch}
    found = both(it)
    if found is None:
        wanted = {"value" if it.with_values else "place": a["y0"]}
        return [*launches, cpu.largest(outer * inner, size, k, **search, **wanted)]
    turned = not found.ordered_like(it.tops[0])
    y = a.scratch + at + copy_bytes(it) if turned else a["y0"]
    launches = [*launches, cpu.largest(outer, size, k, place=y, value=y + 4 * k, pitch=2 * k, **search)]
    return launches + (reordered(a["y0"], it.tops[0], y, found, 0) if turned else [])
