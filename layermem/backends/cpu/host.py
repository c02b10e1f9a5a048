"""Host I/O: copies batches in and outputs out."""

from __future__ import annotations

import numpy as np

from layermem.backends.arena import axes_of_caffe
from layermem.backends.cpu.base import Array, CpuCall, Launch, kernel
from layermem.backends.cpu.support.launch import launch
from layermem.ops import CopyOut, Feed


@kernel(Feed, "forward")
def feed(op: Feed, call: CpuCall) -> list[Launch]:
    """Copy the batch in; it is looked up in each step, because its arrays may change."""
    tops = [call.arrays[f"y{i}"] for i in range(op.tops)]

    def run() -> None:
        for top, values in zip(tops, call.context["batch"][op.layer], strict=True):
            copy_in(top, np.asarray(values))

    return [run]


def copy_in(stored: Array, values: Array) -> None:
    """Copy an NCHW array into a blob in its memory order."""
    blob = axes_of_caffe(stored)
    plain = values.dtype == np.float32 == stored.dtype and values.flags.c_contiguous and values.shape == blob.shape
    if plain and stored.ndim == 4:
        n, c, h, w = values.shape
        launch("transpose", n, c, h * w, out=stored.ctypes.data, x=values.ctypes.data)()
    else:
        blob[...] = values


@kernel(CopyOut, "forward")
def copy_out(op: CopyOut, call: CpuCall) -> list[Launch]:
    stored, context = call.arrays["x0"], call.context

    def run() -> None:
        context["results"][op.blob] = to_caffe_order(stored)

    return [run]


def to_caffe_order(stored: Array) -> Array:
    """A new NCHW array with the numbers of a stored blob."""
    blob = axes_of_caffe(stored)
    if stored.ndim != 4 or stored.dtype != np.float32 or not stored.size:
        return np.array(blob, order="C")
    n, c, h, w = blob.shape
    values = np.empty(blob.shape, np.float32)
    launch("transpose", n, h * w, c, out=values.ctypes.data, x=stored.ctypes.data)()
    return values
