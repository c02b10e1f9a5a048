"""Pooling and LRN that do the backward of the ReLU before them, beside the two ops."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from layermem.backends.narrow import narrowed, widened
from layermem.layers import Layer
from layermem.ops import NARROW, ReluMask
from tests.backends.cuda.harness import Memory, Way, layer_of, run_op
from tests.backends.cuda.test_pooling import CASES

LRNS = {
    "across": ("local_size: 3", (2, 20, 3, 5)),
    "across, one by one": ("local_size: 5 k: 2", (1, 7, 5, 3)),
    "within": ("local_size: 3 norm_region: WITHIN_CHANNEL", (2, 8, 5, 3)),
    "within, one by one": ("local_size: 3 norm_region: WITHIN_CHANNEL", (1, 3, 5, 4)),
}


class Setting(NamedTuple):
    """`word` of NARROW that blobs are stored in, or none."""

    way: Way
    word: str = ""
    accumulate: bool = False


def pooling(name: str, method: str) -> Layer:
    settings, shape = CASES[name]
    return layer_of(f'type: "Pooling" pooling_param {{ pool: {method} {settings} }}', shape)


def lrn(name: str) -> Layer:
    settings, shape = LRNS[name]
    return layer_of(f'type: "LRN" lrn_param {{ alpha: 0.5 {settings} }}', shape)


def after_relu(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Many zeros, of either sign, of which some fill whole windows; a NaN, and one that a window has beside others."""
    y = rng.integers(-2, 4, shape).clip(0).astype(np.float32) / 2
    y[:, :, : shape[2] // 2] *= rng.integers(0, 2, (shape[0], shape[1], 1, 1))
    y[0, 0, -1, -1] = y[-1, -1, 0, 0] = np.nan
    y[0, 0, 0, 0] = -0.0
    return y


def cleared(
    layer: Layer, setting: Setting, rng: np.random.Generator, *, masked: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of dx0 of backward with that of a ReLU in it, and of the two ops one after the other.

    masked   a pooling reads the mask of the ReLU, instead of what its forward names
    """
    way, word, accumulate = setting
    memory, adds = Memory(), ["dx0"] if accumulate else []

    def stored(values: np.ndarray) -> np.ndarray:
        bits = narrowed(np.float32(values), NARROW[word]) if word else np.float32(values)
        return memory.stored(bits, bits.dtype)

    y = after_relu(layer.bottoms[0].shape, rng)
    x, dy = stored(y), stored(rng.standard_normal(layer.tops[0].shape))
    before = np.full_like(y, np.nan) if not accumulate else rng.standard_normal(y.shape)
    mask = np.packbits((widened(x, NARROW[word]) if word else x).reshape(-1) > 0, bitorder="little")
    record, how = layer.record, {"way": way, "storage": word}
    relu = record if masked else replace(record, bottom_relu=True)

    def backward(record, more: dict[str, np.ndarray]) -> np.ndarray:
        dx, roles = stored(before), dict(more)
        if "argmax" in layer.stash:
            roles["argmax"] = memory.stored(np.zeros(record.argmax.shape), record.argmax.dtype)
            top = stored(np.zeros(record.y.shape))
            run_op(record, "forward", {"x0": x, "y0": top, "argmax": roles["argmax"]}, **how)
        elif record.family == "LRN":
            roles["x0"] = x
        run_op(record, "backward", {**roles, "dy0": dy, "dx0": dx}, accumulates=adds, **how)
        return dx

    together = backward(relu, {"relu_mask": memory.stored(mask, np.uint8)} if masked else {})
    apart = backward(record, {})
    run_op(ReluMask(layer.bottoms[0]), "relu_backward", {"dy0": apart, "y0": x}, **how)
    memory.check()
    return together.view(np.uint8), apart.view(np.uint8)
