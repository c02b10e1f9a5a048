"""A Convolution or an InnerProduct and its ReLU (layers/fused.py) in the launches of one op.

The ReLU and its bits are part of the product's epilogue, unless the product cannot have them: a byte of the mask holds
eight channels of one pixel only where channels are multiples of eight, and an InnerProduct may leave y to a launch that
moves it.  There the ReLU follows in place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from layermem.runtime.cuda.kernels.activation import passed, rectified
from layermem.runtime.cuda.kernels.convolution import convolved, sliding
from layermem.runtime.cuda.kernels.engine import Epilogue
from layermem.runtime.cuda.kernels.inner_product import multiplied, product, writes_y
from layermem.runtime.cuda.launch import KERNELS, WORKSPACES, Addresses, Launch, kernel, workspace

BITS = 8  # of a byte


@kernel("ConvolutionReLU.forward")
def convolution_forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    inner = layer.inner
    then, after = epilogue(layer, b, sliding(inner).outputs, True)
    yield convolved(inner, b, then)
    yield from after


@kernel("InnerProductReLU.forward")
def inner_product_forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    inner = layer.inner
    then, after = epilogue(layer, b, product(inner).outputs, writes_y(inner))
    yield from multiplied(inner, b, then)
    yield from after


def epilogue(layer: Any, b: Addresses, channels: int, writes_y: bool) -> tuple[Epilogue, list[Launch]]:
    """What the product of `channels` does on its way out, and what is left to do after it."""
    if writes_y and not (b["mask"] and channels % BITS):
        return Epilogue(b["w1"], mask=b["mask"], rectify=True), []
    return Epilogue(b["w1"]), [rectified(b["y0"], layer.tops[0].count, b["mask"])]


@kernel("ConvolutionReLU.rectify", "InnerProductReLU.rectify")
def rectify(layer: Any, b: Addresses) -> Iterator[Launch]:
    yield passed(b["dy0"], layer.tops[0].count, mask=b["mask"], y=b["y0"])


def as_inner(kind: str, step: str, name: str) -> None:
    """Op `name` is the inner layer's own: by then dy is rectified."""

    @kernel(name)
    def run(layer: Any, b: Addresses) -> Iterator[Launch]:
        yield from KERNELS[f"{kind}.{step}"](layer.inner, b)


def as_much(kind: str, step: str, name: str) -> None:
    """Op `name` needs the scratch of the inner layer's."""

    @workspace(name)
    def nbytes(layer: Any, roles: Collection[str]) -> int:
        return WORKSPACES[f"{kind}.{step}"](layer.inner, roles)


for kind in ("Convolution", "InnerProduct"):
    for step in ("forward", "backward_weights", "backward_data"):
        name = f"{kind}ReLU.{step}"
        if step != "forward":
            as_inner(kind, step, name)
        if f"{kind}.{step}" in WORKSPACES:
            as_much(kind, step, name)
