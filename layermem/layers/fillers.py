"""Caffe's seven fillers: initial values of parameters, and the values of DummyData layers.

    fill(filler, shape, *key)         float32 array of `shape` (Caffe's NCHW order), the same for the same key
    fill_parts(filler, shape, *key)   the same values as a sequence of flat arrays, without holding all of them

fan-in is count / shape[0], fan-out count / shape[1]; xavier and msra divide by one of them or by their mean.
source  Caffe filler.hpp.  The numbers are our own (seeds.py), the distributions Caffe's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from math import ceil, prod, sqrt

import numpy as np
import numpy.typing as npt

from layermem.errors import InputError
from layermem.proto.schema import Message, enum_name
from layermem.utils.seeds import generator

Array = npt.NDArray[np.float32]
Shape = tuple[int, ...]
Draw = np.random.Generator
Parts = Iterator[Array]
PART = 1 << 15  # values of a part: they fit the cache


def fill(filler: Message, shape: Sequence[int], *key: int | str) -> Array:
    """The initial values that `filler` (a FillerParameter) gives a blob; `key` names the blob, seed first."""
    values = np.empty(prod(shape), np.float32)
    begin = 0
    for part in fill_parts(filler, shape, *key):
        values[begin : begin + part.size] = part
        begin += part.size
    return values.reshape(shape)


def fill_parts(filler: Message, shape: Sequence[int], *key: int | str, unit: int = 1) -> Parts:
    """Return the values of `fill` in order, as flat parts of whole units; each part overwrites the previous one.

    A part holds at most PART values, or one unit if that is more.  `positive_unitball` has parts of whole rows (all
    values of an output), because it divides by their sum; it holds a row in float64."""
    check_filler(filler)
    sizes = _sizes(prod(shape), unit)
    return FILLERS[filler.type](filler, tuple(shape), generator(*key), sizes) if sizes else iter(())


def _sizes(count: int, unit: int) -> list[int]:
    """The sizes of the parts of `count` values."""
    whole = unit * max(1, PART // unit)
    return [min(whole, count - begin) for begin in range(0, count, whole)]


def check_filler(filler: Message) -> None:
    """InputError for a filler whose settings are invalid."""
    kind = filler.type
    if kind not in FILLERS:
        raise InputError(f"has unknown filler type '{kind}' (choose from {', '.join(FILLERS)})")
    if filler.sparse != -1 and kind != "gaussian":
        raise InputError(f"has a sparse '{kind}' filler; only 'gaussian' can be sparse")
    if kind == "uniform" and filler.min > filler.max:
        raise InputError(f"has a '{kind}' filler from {filler.min:g} to {filler.max:g}; min must not be above max")
    if kind == "gaussian" and filler.std < 0:
        raise InputError(f"has a '{kind}' filler with a std of {filler.std:g}; it must not be negative")


def is_constant(filler: Message) -> bool:
    """Whether the filler gives the same values every time."""
    return filler.type in ("constant", "bilinear")


def fan(filler: Message, shape: Shape) -> float:
    """The n by which xavier and msra divide."""
    count = prod(shape)
    fan_in = count / _outputs(shape)
    fan_out = count / shape[1] if len(shape) > 1 else count
    return {"FAN_IN": fan_in, "FAN_OUT": fan_out, "AVERAGE": (fan_in + fan_out) / 2}[enum_name(filler, "variance_norm")]


def _outputs(shape: Shape) -> int:
    """The extent of the first axis; a blob without axes has one output."""
    return shape[0] if shape else 1


def _constant(filler: Message, shape: Shape, draw: Draw, sizes: Sequence[int]) -> Parts:
    values = np.full(max(sizes), filler.value, np.float32)
    for size in sizes:
        yield values[:size]


def _uniform(filler: Message, shape: Shape, draw: Draw, sizes: Sequence[int]) -> Parts:
    """Uniform values in [min, max): the upper end is excluded, so that labels drawn from [0, classes) are all
    classes."""
    return _between(filler.min, filler.max, draw, sizes)


def _between(low: float, high: float, draw: Draw, sizes: Sequence[int]) -> Parts:
    most = np.nextafter(np.float32(high), np.float32(low))  # rounding could reach `high`
    for part in _empty(sizes):
        draw.random(out=part, dtype=np.float32)
        part *= np.float32(high - low)
        part += np.float32(low)
        np.minimum(part, most, out=part)
        yield part


def _gaussian(filler: Message, shape: Shape, draw: Draw, sizes: Sequence[int]) -> Parts:
    parts = _normal(filler.mean, filler.std, draw, sizes)
    return parts if filler.sparse < 0 else _sparse(parts, filler.sparse / _outputs(shape), deepcopy(draw), sizes)


def _sparse(parts: Parts, share: float, draw: Draw, sizes: Sequence[int]) -> Parts:
    """`parts`, of which a fraction of `share` on average is not zero: so many inputs of each output.

    The numbers that decide follow all normal ones in the stream of `draw`, which are drawn once more to get there."""
    for part in _empty(sizes):
        draw.standard_normal(out=part, dtype=np.float32)
    for part in parts:
        part *= draw.random(part.size, np.float32) < share
        yield part


def _normal(mean: float, std: float, draw: Draw, sizes: Sequence[int]) -> Parts:
    for part in _empty(sizes):
        draw.standard_normal(out=part, dtype=np.float32)
        part *= np.float32(std)
        part += np.float32(mean)
        yield part


def _empty(sizes: Sequence[int]) -> Parts:
    """Arrays of these sizes in the same memory, not initialized."""
    memory = np.empty(max(sizes), np.float32)
    for size in sizes:
        yield memory[:size]


def _positive_unitball(filler: Message, shape: Shape, draw: Draw, sizes: Sequence[int]) -> Parts:
    """Uniform values in [0, 1); the inputs of each output are then scaled to a sum of 1."""
    inputs = prod(shape[1:])
    for size in _sizes(prod(shape), inputs):
        rows = draw.random((size // inputs, inputs))
        rows /= rows.sum(axis=1, keepdims=True)
        yield rows.reshape(-1).astype(np.float32)


def _xavier(filler: Message, shape: Shape, draw: Draw, sizes: Sequence[int]) -> Parts:
    limit = sqrt(3 / fan(filler, shape))
    return _between(-limit, limit, draw, sizes)


def _msra(filler: Message, shape: Shape, draw: Draw, sizes: Sequence[int]) -> Parts:
    return _normal(0, sqrt(2 / fan(filler, shape)), draw, sizes)


def _bilinear(filler: Message, shape: Shape, draw: Draw, sizes: Sequence[int]) -> Parts:
    """The weights with which a Deconvolution of stride f enlarges f times: a tent over the window."""
    if len(shape) != 4 or shape[2] != shape[3]:
        raise InputError(f"has a 'bilinear' filler for a blob of shape {shape}; it fills square 4-D windows only")
    width = shape[3]
    half = ceil(width / 2)
    centre = (width - 1) / (2 * half)
    tent = 1 - np.abs(np.arange(width) / half - centre)
    begin = 0
    for size in sizes:
        row, column = np.divmod(np.arange(begin, begin + size), width)
        yield (tent[row % width] * tent[column]).astype(np.float32)
        begin += size


FILLERS: dict[str, Callable[[Message, Shape, Draw, Sequence[int]], Parts]] = {
    "constant": _constant,
    "uniform": _uniform,
    "gaussian": _gaussian,
    "positive_unitball": _positive_unitball,
    "xavier": _xavier,
    "msra": _msra,
    "bilinear": _bilinear,
}
