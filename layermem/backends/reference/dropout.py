"""Dropout: forward, backward and a recomputation draw the same words."""

from __future__ import annotations

import numpy as np

from layermem.backends.reference.base import Array, ReferenceCall, kernel, stored
from layermem.backends.reference.support.philox import words
from layermem.ops import Dropout, first_index


def apply_dropout(op: Dropout, call: ReferenceCall, into: Array, source: Array) -> None:
    """Compute into = source where kept, scaled; 0 elsewhere."""
    into, source = stored(into), stored(source)
    first = first_index(op.batch_slice, source.size)
    random_words = words(source.size, call.context["seed"], op.stream, call.context["step"], first)
    random_words = random_words.reshape(source.shape)
    into[...] = np.where(random_words >= op.threshold, source * op.scale, 0)


@kernel(Dropout, "forward")
def dropout_forward(op: Dropout, call: ReferenceCall) -> None:
    if op.identity:
        call["y0"][...] = call["x0"]
    else:
        apply_dropout(op, call, call["y0"], call["x0"])


@kernel(Dropout, "backward")
def dropout_backward(op: Dropout, call: ReferenceCall) -> None:
    if op.identity:
        call["dx0"][...] = call["dy0"]
    else:
        apply_dropout(op, call, call["dx0"], call["dy0"])
