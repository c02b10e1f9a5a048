"""Ops of several layers (layers/fused.py) in the launches of one.

A ReLU and its bits, and a sum before it, are part of the epilogue of the product or the BatchNorm before them, but for
two cases.  A byte of a mask holds eight channels of one pixel only where channels are multiples of eight; and an
InnerProduct may leave y to a launch that moves it.  There the ReLU follows in place, over the whole of y.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from layermem.backends.cuda.kernels.activation import passed, rectified
from layermem.backends.cuda.kernels.batch_norm import scaled
from layermem.backends.cuda.kernels.convolution import convolved, sliding
from layermem.backends.cuda.kernels.engine import Epilogue
from layermem.backends.cuda.kernels.inner_product import multiplied, product, writes_y
from layermem.backends.cuda.kernels.shape import copy
from layermem.backends.cuda.launch import KERNELS, WORKSPACES, Addresses, Launch, kernel, workspace

BITS = 8  # of a byte
ENDS = {"Convolution": ("ReLU", "Sum", "SumReLU"), "InnerProduct": ("ReLU", "Sum", "SumReLU"),
        "BatchNormScale": ("Sum", "SumReLU")}  # fmt: skip

FUSED = frozenset(f"{kind}{end}" for kind, ends in ENDS.items() for end in ends)


def every(kind: str, step: str, *ends: str) -> list[str]:
    """The ops `step` of the layers that `kind` is fused into."""
    return [f"{kind}{end}.{step}" for end in ends or ENDS[kind]]


# -- forward -----------------------------------------------------------------------------------------------------------


@kernel(*every("Convolution", "forward"))
def convolution_forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    then = epilogue(layer, b, sliding(layer.inner).outputs)
    yield convolved(layer.inner, b, then)
    yield from what_is_left(layer, b, then)


@kernel(*every("InnerProduct", "forward"))
def inner_product_forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    if writes_y(layer.inner):
        then = epilogue(layer, b, product(layer.inner).outputs)
    else:
        then = Epilogue(b["w1"], added=b["y0"] if "x1" in b else 0)
        if "x1" in b:
            yield from copy(b["y0"], b["x1"], layer.tops[0].count)
    yield from multiplied(layer.inner, b, then)
    yield from what_is_left(layer, b, then)


def epilogue(layer: Any, b: Addresses, channels: int) -> Epilogue:
    """All that a product can do of what follows it."""
    whole = layer.relu and not (b["mask"] and channels % BITS)
    return Epilogue(b["w1"], b["x1"], b["mask"] if whole else 0, whole)


def what_is_left(layer: Any, b: Addresses, done: Epilogue) -> Iterator[Launch]:
    if layer.relu and not done.rectify:
        yield rectified(b["y0"], layer.tops[0].count, b["mask"])


@kernel(*every("BatchNormScale", "forward"))
def batch_norm_forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield from scaled(layer.inner, b, relu=layer.relu and not b["mask"], added=b["x1"])
    yield from bits_of_sum(layer, b)


@kernel(*every("BatchNormScale", "recompute"))
def batch_norm_replay(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield from scaled(layer.inner, b, relu=layer.relu and not b["mask"], added=b["x1"], again=True)
    yield from bits_of_sum(layer, b)


def bits_of_sum(layer: Any, b: Addresses) -> Iterable[Launch]:
    return [rectified(b["y0"], layer.tops[0].count, b["mask"])] if b["mask"] else []


# -- backward ----------------------------------------------------------------------------------------------------------


def as_inner(kind: str, step: str) -> None:
    """The ops `step` are the inner layer's own: by then dy is rectified."""

    @kernel(*every(kind, step))
    def run(layer: Any, b: Addresses) -> Iterator[Launch]:
        yield from KERNELS[f"{kind}.{step}"](layer.inner, b)


def as_much(kind: str, step: str) -> None:
    """The ops `step` need the scratch of the inner layer's."""

    @workspace(*every(kind, step))
    def nbytes(layer: Any, roles: Collection[str]) -> int:
        return WORKSPACES[f"{kind}.{step}"](layer.inner, roles)


@kernel(
    *every("Convolution", "relu_backward", "ReLU", "SumReLU"),
    *every("InnerProduct", "relu_backward", "ReLU", "SumReLU"),
    *every("BatchNormScale", "relu_backward", "SumReLU"),
)
def rectify(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield passed(b["dy0"], layer.tops[0].count, mask=b["mask"], y=b["y0"])


@kernel(*(name for kind in ENDS for name in every(kind, "residual_backward", "Sum", "SumReLU")))
def backward_sum(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield from copy(b["dx1"], b["dy0"], layer.tops[0].count, b.adds("dx1"))


for product_kind in ("Convolution", "InnerProduct"):
    for backward_step in ("wgrad", "dgrad"):
        as_inner(product_kind, backward_step)
as_inner("BatchNormScale", "backward")

for fused_kind in ENDS:
    for any_step in ("forward", "wgrad", "dgrad", "backward"):
        if f"{fused_kind}.{any_step}" in WORKSPACES:
            as_much(fused_kind, any_step)
