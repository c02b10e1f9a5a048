"""Caffe's seven fillers: initial values of parameters, and the values of DummyData layers.

    fill(filler, shape, *key) -> float32 array of `shape` (Caffe's NCHW order), the same for the same key

fan-in is count / shape[0], fan-out count / shape[1]; xavier and msra divide by one of them or by their mean.
source  Caffe filler.hpp.  The numbers are our own (seeds.py), the distributions Caffe's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import ceil, prod, sqrt

import numpy as np
import numpy.typing as npt

from layermem.errors import InputError
from layermem.proto.schema import Message, enum_name
from layermem.utils.seeds import generator

Array = npt.NDArray[np.float32]
Shape = tuple[int, ...]
Draw = np.random.Generator
PART = 1 << 15  # values


def fill(filler: Message, shape: Sequence[int], *key: int | str) -> Array:
    """The initial values that `filler` (a FillerParameter) gives a blob; `key` names the blob, seed first."""
    check_filler(filler)
    values = FILLERS[filler.type](filler, tuple(shape), generator(*key))
    return np.ascontiguousarray(values, np.float32).reshape(shape)


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
    """The n of xavier and msra."""
    count = prod(shape)
    fan_in = count / shape[0]
    fan_out = count / shape[1] if len(shape) > 1 else count
    return {"FAN_IN": fan_in, "FAN_OUT": fan_out, "AVERAGE": (fan_in + fan_out) / 2}[enum_name(filler, "variance_norm")]


def _constant(filler: Message, shape: Shape, draw: Draw) -> Array:
    return np.full(shape, filler.value, np.float32)


def _uniform(filler: Message, shape: Shape, draw: Draw) -> Array:
    """[min, max): the upper end is excluded, so that labels drawn from [0, classes) are all classes."""
    return _between(filler.min, filler.max, shape, draw)


def _between(low: float, high: float, shape: Shape, draw: Draw) -> Array:
    values = np.empty(shape, np.float32)
    most = np.nextafter(np.float32(high), np.float32(low))  # rounding could reach `high`
    for part in _parts(values):
        draw.random(out=part, dtype=np.float32)
        part *= np.float32(high - low)
        part += np.float32(low)
        np.minimum(part, most, out=part)
    return values


def _gaussian(filler: Message, shape: Shape, draw: Draw) -> Array:
    values = _normal(filler.mean, filler.std, shape, draw)
    if filler.sparse >= 0:  # on average so many inputs of each output are not zero
        values *= draw.random(shape, np.float32) < filler.sparse / shape[0]
    return values


def _normal(mean: float, std: float, shape: Shape, draw: Draw) -> Array:
    values = np.empty(shape, np.float32)
    for part in _parts(values):
        draw.standard_normal(out=part, dtype=np.float32)
        part *= np.float32(std)
        part += np.float32(mean)
    return values


def _parts(values: Array) -> Iterator[Array]:
    """Flat slices of `values` that fit the cache."""
    flat = values.reshape(-1)
    for start in range(0, flat.size, PART):
        yield flat[start : start + PART]


def _positive_unitball(filler: Message, shape: Shape, draw: Draw) -> Array:
    """Uniform in [0, 1), then each output's inputs are scaled to a sum of 1."""
    rows = draw.random((shape[0], prod(shape[1:])))
    values: Array = (rows / rows.sum(axis=1, keepdims=True)).reshape(shape)
    return values


def _xavier(filler: Message, shape: Shape, draw: Draw) -> Array:
    limit = sqrt(3 / fan(filler, shape))
    return _between(-limit, limit, shape, draw)


def _msra(filler: Message, shape: Shape, draw: Draw) -> Array:
    return _normal(0, sqrt(2 / fan(filler, shape)), shape, draw)


def _bilinear(filler: Message, shape: Shape, draw: Draw) -> Array:
    """The weights with which a Deconvolution of stride f enlarges f times: a tent over the window."""
    if len(shape) != 4 or shape[2] != shape[3]:
        raise InputError(f"has a 'bilinear' filler for a blob of shape {shape}; it fills square 4-D windows only")
    half = ceil(shape[3] / 2)
    centre = (shape[3] - 1) / (2 * half)
    tent = 1 - np.abs(np.arange(shape[3]) / half - centre)
    return np.broadcast_to(np.outer(tent, tent), shape)


FILLERS: dict[str, Callable[[Message, Shape, Draw], Array]] = {
    "constant": _constant,
    "uniform": _uniform,
    "gaussian": _gaussian,
    "positive_unitball": _positive_unitball,
    "xavier": _xavier,
    "msra": _msra,
    "bilinear": _bilinear,
}
