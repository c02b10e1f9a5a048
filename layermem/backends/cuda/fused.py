"""Fused ops (layers/fused.py): a residual add, a ReLU and its mask in the epilogue of the op before them.

Two cases need a separate ReLU launch, in place over y: channels that are not a multiple of eight, since a byte of the
mask would then hold bits of two pixels; and an InnerProduct whose y is reordered by a later launch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from layermem.backends.cuda.activation import apply_mask, relu_in_place
from layermem.backends.cuda.batch_norm import scaled
from layermem.backends.cuda.convolution import conv_problem as convolution_problem
from layermem.backends.cuda.convolution import fprop as convolution_fprop
from layermem.backends.cuda.implicit_gemm import Epilogue
from layermem.backends.cuda.inner_product import conv_problem as inner_product_problem
from layermem.backends.cuda.inner_product import fprop as inner_product_fprop
from layermem.backends.cuda.inner_product import takes_epilogue
from layermem.backends.cuda.launch import KERNELS, WORKSPACES, Addresses, Launch, kernel, workspace_bytes
from layermem.backends.cuda.shape import copy

MASK_BITS = 8  # of a byte
ENDS = {"Convolution": ("ReLU", "Sum", "SumReLU"), "InnerProduct": ("ReLU", "Sum", "SumReLU"),
        "BatchNormScale": ("Sum", "SumReLU")}  # fmt: skip

FUSED = frozenset(f"{kind}{end}" for kind, ends in ENDS.items() for end in ends)


def every(kind: str, step: str, *ends: str) -> list[str]:
    """The ops `step` of the layers that `kind` is fused into."""
    return [f"{kind}{end}.{step}" for end in ends or ENDS[kind]]


# -- forward -----------------------------------------------------------------------------------------------------------


@kernel(*every("Convolution", "forward"))
def convolution_forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    epilogue = epilogue_of(layer, b, convolution_problem(layer.inner).outputs)
    yield convolution_fprop(layer.inner, b, epilogue)
    yield from remaining_epilogue(layer, b, epilogue)


@kernel(*every("InnerProduct", "forward"))
def inner_product_forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    if takes_epilogue(layer.inner):
        epilogue = epilogue_of(layer, b, inner_product_problem(layer.inner).outputs)
    else:
        epilogue = Epilogue(b["w1"], residual=b["y0"] if "x1" in b else 0)
        if "x1" in b:
            yield from copy(b["y0"], b["x1"], layer.tops[0].count)
    yield from inner_product_fprop(layer.inner, b, epilogue)
    yield from remaining_epilogue(layer, b, epilogue)


def epilogue_of(layer: Any, b: Addresses, channels: int) -> Epilogue:
    """The part of the op that fits into the product's epilogue."""
    relu = layer.relu and not (b["mask"] and channels % MASK_BITS)
    return Epilogue(b["w1"], b["x1"], b["mask"] if relu else 0, relu)


def remaining_epilogue(layer: Any, b: Addresses, applied: Epilogue) -> Iterator[Launch]:
    if layer.relu and not applied.relu:
        yield relu_in_place(b["y0"], layer.tops[0].count, b["mask"])


@kernel(*every("BatchNormScale", "forward"))
def batch_norm_forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield from scaled(layer.inner, b, relu=layer.relu and not b["mask"], residual=b["x1"])
    yield from mask_of_sum(layer, b)


@kernel(*every("BatchNormScale", "recompute"))
def batch_norm_replay(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield from scaled(layer.inner, b, relu=layer.relu and not b["mask"], residual=b["x1"], recompute=True)
    yield from mask_of_sum(layer, b)


def mask_of_sum(layer: Any, b: Addresses) -> Iterable[Launch]:
    return [relu_in_place(b["y0"], layer.tops[0].count, b["mask"])] if b["mask"] else []


# -- backward ----------------------------------------------------------------------------------------------------------


def run_as_inner(kind: str, step: str) -> None:
    """The ops `step` are the inner layer's own: its dy has the ReLU's mask applied already."""

    @kernel(*every(kind, step))
    def run(layer: Any, b: Addresses) -> Iterator[Launch]:
        yield from KERNELS[f"{kind}.{step}"](layer.inner, b)


def reserve_as_inner(kind: str, step: str) -> None:
    """The ops `step` need the inner layer's workspace."""

    @workspace_bytes(*every(kind, step))
    def nbytes(layer: Any, roles: Collection[str]) -> int:
        return WORKSPACES[f"{kind}.{step}"](layer.inner, roles)


@kernel(
    *every("Convolution", "relu_backward", "ReLU", "SumReLU"),
    *every("InnerProduct", "relu_backward", "ReLU", "SumReLU"),
    *every("BatchNormScale", "relu_backward", "SumReLU"),
)
def relu_backward(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield apply_mask(b["dy0"], layer.tops[0].count, mask=b["mask"], y=b["y0"])


@kernel(*(name for kind in ENDS for name in every(kind, "residual_backward", "Sum", "SumReLU")))
def residual_backward(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield from copy(b["dx1"], b["dy0"], layer.tops[0].count, b.accumulates("dx1"))


for product_kind in ("Convolution", "InnerProduct"):
    for backward_step in ("wgrad", "dgrad"):
        run_as_inner(product_kind, backward_step)
run_as_inner("BatchNormScale", "backward")

for fused_kind in ENDS:
    for any_step in ("forward", "wgrad", "dgrad", "backward"):
        if f"{fused_kind}.{any_step}" in WORKSPACES:
            reserve_as_inner(fused_kind, any_step)
