"""Convolution and Deconvolution: the same three sums, in different roles."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from layermem.backends.cuda.kernels.channels import channel_sums, columns_of
from layermem.backends.cuda.kernels.engine import ENGINES, Epilogue, Sliding, correlate, spread, weigh, weigh_bytes
from layermem.backends.cuda.launch import Addresses, Launch, kernel, workspace


def sliding(layer: Any) -> Sliding:
    """The geometry of a Convolution or Deconvolution: its image is x, or y."""
    down, right = layer.windows
    image, out = layer.bottoms[0].shape, layer.tops[0].shape
    if layer.type == "Deconvolution":
        image, out = out, image
    return Sliding(
        image[0], down.size, right.size, image[1] // layer.group, down.floor_out, right.floor_out,
        out[1] // layer.group, layer.group, (down.kernel, right.kernel), (down.stride, right.stride),
        (down.pad, right.pad), (down.dilation, right.dilation),
    )  # fmt: skip


@kernel("Convolution.forward")
def convolution_forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    for i in range(len(layer.bottoms)):
        yield convolved(layer, b, Epilogue(b["w1"]), i)


def convolved(layer: Any, b: Addresses, then: Epilogue, i: int = 0) -> Launch:
    """One bottom of a Convolution."""
    return correlate(ENGINES[b.precision], sliding(layer), b[f"y{i}"], b[f"x{i}"], b["w0"], then)


@kernel("Convolution.dgrad")
def convolution_backward_data(layer: Any, b: Addresses) -> Iterator[Launch]:
    g = sliding(layer)
    for i in range(len(layer.bottoms)):
        if f"dx{i}" in b:
            yield spread(ENGINES[b.precision], g, b[f"dx{i}"], b[f"dy{i}"], b["w0"], adds=b.adds(f"dx{i}"))


@kernel("Deconvolution.forward")
def deconvolution_forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    g = sliding(layer)
    for i in range(len(layer.bottoms)):
        yield spread(ENGINES[b.precision], g, b[f"y{i}"], b[f"x{i}"], b["w0"], b["w1"])


@kernel("Deconvolution.dgrad")
def deconvolution_backward_data(layer: Any, b: Addresses) -> Iterator[Launch]:
    g = sliding(layer)
    for i in range(len(layer.bottoms)):
        if f"dx{i}" in b:
            dx = b[f"dx{i}"]
            there = Epilogue(added=dx if b.adds(f"dx{i}") else 0)
            yield correlate(ENGINES[b.precision], g, dx, b[f"dy{i}"], b["w0"], there)


@kernel("Convolution.wgrad", "Deconvolution.wgrad")
def backward_weights(layer: Any, b: Addresses) -> Iterator[Launch]:
    g, images, outs = sliding(layer), "x", "dy"
    if layer.type == "Deconvolution":
        images, outs = outs, images
    for i in range(len(layer.bottoms)):
        again = i > 0
        if "dw0" in b:
            yield from weigh(
                ENGINES[b.precision],
                g,
                b["dw0"],
                b[f"{outs}{i}"],
                b[f"{images}{i}"],
                again or b.adds("dw0"),
                b["workspace"],
            )
        if "dw1" in b:
            at = columns_of(layer.tops[0])
            yield from channel_sums(at, b["dw1"], b[f"dy{i}"], again or b.adds("dw1"), b["workspace"])


@workspace("Convolution.wgrad", "Deconvolution.wgrad")
def backward_weights_bytes(layer: Any, roles: Collection[str]) -> int:
    return max(
        weigh_bytes(sliding(layer)) if "dw0" in roles else 0,
        columns_of(layer.tops[0]).part_bytes() if "dw1" in roles else 0,
    )
