"""What a step needs beside layers: batches in, outputs out, seeds of gradients, the gradient norm."""

from __future__ import annotations

from typing import Any

import numpy as np

from layermem.backends.reference.base import Buffers, kernel
from layermem.layers.data import FEEDS


def feed(layer: Any, b: Buffers) -> None:
    """Copy the batch of this step, NCHW arrays in the order of the tops, into the net."""
    for y, given in zip(b.ys, b.context["batch"][layer.name], strict=True):
        y[...] = given


for _type in FEEDS:
    kernel(f"{_type}.forward")(feed)


@kernel("Net.output")
def output(blob: str, b: Buffers) -> None:
    """Hand a blob to the host, with Caffe's axes, under its name."""
    b.context["results"][blob] = np.array(b.x, order="C")


@kernel("Fill.seed")
def seed(loss_weight: float, b: Buffers) -> None:
    """The gradient of the objective with respect to a blob that counts in it."""
    b.y[...] = loss_weight


@kernel("Fill.zero")
def zero(layer: Any, b: Buffers) -> None:
    b.y[...] = 0


@kernel("Clip.norm")
def norm(layer: Any, b: Buffers) -> None:
    """L2 norm over all gradients, summed parameter by parameter in the order of the net."""
    b.y[...] = np.sqrt(sum(float(np.sum(np.square(x, dtype=np.float64))) for x in b.xs))
