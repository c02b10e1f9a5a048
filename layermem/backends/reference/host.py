"""Ops of a step that belong to no layer: batches in, outputs out."""

from __future__ import annotations

import numpy as np

from layermem.backends.reference.base import ReferenceCall, kernel
from layermem.ops import CopyOut, Feed


@kernel(Feed, "forward")
def feed(op: Feed, call: ReferenceCall) -> None:
    """Copy the batch of this step, NCHW arrays in the order of the tops, into the net."""
    for y, array in zip(call.all("y"), call.context["batch"][op.layer], strict=True):
        y[...] = array


@kernel(CopyOut, "forward")
def copy_out(op: CopyOut, call: ReferenceCall) -> None:
    """Copy a blob to the host, with Caffe's axes, under its name."""
    call.context["results"][op.blob] = np.array(call["x0"], order="C")
