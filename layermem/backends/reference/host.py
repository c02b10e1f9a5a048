"""Ops of a step that belong to no layer: batches in, outputs out, constants, the gradient norm."""

from __future__ import annotations

import numpy as np

from layermem.backends.reference.base import ReferenceCall, kernel
from layermem.ops import CopyOut, Feed, Fill, GradientNorm


@kernel(Feed, "forward")
def feed(op: Feed, call: ReferenceCall) -> None:
    """Copy the batch of this step, NCHW arrays in the order of the tops, into the net."""
    for y, array in zip(call.all("y"), call.context["batch"][op.layer], strict=True):
        y[...] = array


@kernel(CopyOut, "forward")
def copy_out(op: CopyOut, call: ReferenceCall) -> None:
    """Copy a blob to the host, with Caffe's axes, under its name."""
    call.context["results"][op.blob] = np.array(call["x0"], order="C")


@kernel(Fill, "fill")
def fill(op: Fill, call: ReferenceCall) -> None:
    call["y0"][...] = op.value * call.context["loss_scale"] if op.scaled else op.value


@kernel(GradientNorm, "forward")
def gradient_norm(op: GradientNorm, call: ReferenceCall) -> None:
    """Compute the L2 norm over all gradients, summed parameter by parameter in the order of the net."""
    squares = sum(float(np.sum(np.square(x, dtype=np.float64))) for x in call.all("x"))
    call["y0"][...] = np.sqrt(squares)
