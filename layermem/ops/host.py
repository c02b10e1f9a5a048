"""Ops of a step that belong to no layer: they bring batches in and take outputs out."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import OpRecord, Tensor


@dataclass(frozen=True)
class Feed(OpRecord):
    """forward   y{i} = the arrays of the step's batch for input layer `layer`, `tops` of them

    images   the tensor y0 if the batch may hold it as ByteImages; None if it never does
    mean     shape [C,H,W] of the mean image that is then subtracted; None for one number per channel
    """

    layer: str
    tops: int
    images: Tensor | None = None
    mean: Tensor | None = None


@dataclass(frozen=True)
class CopyOut(OpRecord):
    """forward   hands x0 to the host under the name `blob`"""

    blob: str
