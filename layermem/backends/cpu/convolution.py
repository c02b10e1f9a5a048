"""Convolution, Deconvolution and InnerProduct on the native GEMM engine.

A Deconvolution is the convolution over its top: its forward is that one's data gradient, and in the weight gradient x
and dy change places.  Fused with a ReLU they have the same ops, and one before them that rectifies dy.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from layermem._native import cpu
from layermem.backends.cpu import turned
from layermem.backends.cpu.base import Args, Launch, binds
from layermem.backends.cpu.elements import Updating, settings
from layermem.layers.fused import Rectified


def plain(layer: Any) -> Any:
    """The layer, without the ReLU that it may be fused with."""
    return layer.inner if isinstance(layer, Rectified) else layer


def geometry(layer: Any) -> Any:
    """The convolution whose image is x (of a Convolution) or y (of a Deconvolution)."""
    layer = plain(layer)
    down, right = layer.windows
    image, maps = layer.bottoms[0], layer.tops[0]
    if layer.type == "Deconvolution":
        image, maps = maps, image
    return cpu.Conv(
        n=image.shape[0],
        c=image.shape[1],
        h=down.size,
        w=right.size,
        k=maps.shape[1],
        kernel=(down.kernel, right.kernel),
        stride=(down.stride, right.stride),
        pad=(down.pad, right.pad),
        dilation=(down.dilation, right.dilation),
        groups=layer.group,
    )


def positions(layer: Any) -> int:
    n, _, h, w = layer.tops[0].shape
    return int(n * h * w)


def pairs(a: Args, stem: str) -> list[int]:
    return [i for i in range(len(a.layer.bottoms)) if a.has(f"{stem}{i}")]


@binds(
    "Convolution.forward",
    "ConvolutionReLU.forward",
    scratch=lambda layer, roles: cpu.conv_forward_workspace(geometry(layer)),
)
def conv_forward(a: Args) -> list[Launch]:
    g, relu = geometry(a.layer), isinstance(a.layer, Rectified)
    return [
        cpu.conv_forward(
            g, y=a[f"y{i}"], x=a[f"x{i}"], w=a["w0"], bias=a["w1"], relu=relu, mask=a["mask"], scratch=a.scratch
        )
        for i in pairs(a, "x")
    ]


@binds("ConvolutionReLU.relu_backward", "InnerProductReLU.relu_backward")
def rectify(a: Args) -> list[Launch]:
    """dy is passed on where y is positive, and is 0 elsewhere."""
    count, dy = a.count("dy0"), a["dy0"]
    if a.has("mask"):
        return [cpu.relu_backward(count, dx=dy, dy=dy, mask=a["mask"])]
    return [cpu.map("relu_slope", count, out=dy, a=dy, b=a["y0"])]


@binds(
    "Convolution.dgrad",
    "ConvolutionReLU.dgrad",
    scratch=lambda layer, roles: cpu.conv_backward_data_workspace(geometry(layer)),
)
def conv_backward_data(a: Args) -> list[Launch]:
    g = geometry(a.layer)
    return [
        cpu.conv_backward_data(
            g, dx=a[f"dx{i}"], dy=a[f"dy{i}"], w=a["w0"], accumulate=a.adds(f"dx{i}"), scratch=a.scratch
        )
        for i in pairs(a, "dx")
    ]


def weights_scratch(layer: Any, roles: Collection[str]) -> int:
    weights = cpu.conv_backward_weights_workspace(geometry(layer)) if "dw0" in roles else 0
    bias = cpu.column_sums_workspace(positions(layer), layer.tops[0].shape[1]) if "dw1" in roles else 0
    return max(weights, bias)


@binds(
    "Convolution.wgrad", "ConvolutionReLU.wgrad", "Deconvolution.wgrad",
    scratch=weights_scratch,
)  # fmt: skip
def conv_backward_weights(a: Args) -> list[Launch]:
    g, turned = geometry(a.layer), a.layer.type == "Deconvolution"
    launches: list[Launch] = []
    for number, i in enumerate(pairs(a, "dy")):
        if a.has("dw0"):
            x, dy = (a[f"dy{i}"], a[f"x{i}"]) if turned else (a[f"x{i}"], a[f"dy{i}"])
            adds = number > 0 or a.adds("dw0")
            launches.append(cpu.conv_backward_weights(g, dw=a["dw0"], x=x, dy=dy, accumulate=adds, scratch=a.scratch))
        if a.has("dw1"):
            adds = number > 0 or a.adds("dw1")
            launches.append(bias_gradient(a, positions(a.layer), a.layer.tops[0].shape[1], f"dy{i}", adds))
    return launches


def bias_gradient(a: Args, rows: int, columns: int, dy: str, adds: bool) -> Launch:
    launch: Launch = cpu.column_sums(rows, columns, out=a["dw1"], x=a[dy], accumulate=adds, scratch=a.scratch)
    return launch


@binds("Deconvolution.forward", scratch=lambda layer, roles: cpu.conv_backward_data_workspace(geometry(layer)))
def deconv_forward(a: Args) -> list[Launch]:
    g = geometry(a.layer)
    return [
        cpu.conv_backward_data(g, dx=a[f"y{i}"], dy=a[f"x{i}"], w=a["w0"], bias=a["w1"], scratch=a.scratch)
        for i in pairs(a, "x")
    ]


@binds("Deconvolution.dgrad", scratch=lambda layer, roles: cpu.conv_forward_workspace(geometry(layer)))
def deconv_backward_data(a: Args) -> list[Launch]:
    g = geometry(a.layer)
    return [
        cpu.conv_forward(g, y=a[f"dx{i}"], x=a[f"dy{i}"], w=a["w0"], accumulate=a.adds(f"dx{i}"), scratch=a.scratch)
        for i in pairs(a, "dx")
    ]


# -- InnerProduct ----------------------------------------------------------------------------------------------------


def turned_scratch(layer: Any, roles: Collection[str]) -> int:
    it = plain(layer)
    return 0 if it.by_rows else turned.scratch(it, roles)


@binds("InnerProduct.forward", "InnerProductReLU.forward", scratch=turned_scratch)
def inner_product_forward(a: Args) -> list[Launch]:
    it, relu = plain(a.layer), isinstance(a.layer, Rectified)
    if not it.by_rows:
        return turned.forward(a, it, relu)
    return [
        cpu.inner_product_forward(
            it.rows, it.outputs, it.inner, y=a["y0"], x=a["x0"], w=a["w0"], bias=a["w1"], relu=relu, mask=a["mask"]
        )
    ]


@binds("InnerProduct.dgrad", "InnerProductReLU.dgrad", scratch=turned_scratch)
def inner_product_backward_data(a: Args) -> list[Launch]:
    it = plain(a.layer)
    if not it.by_rows:
        return turned.backward_data(a, it)
    return [
        cpu.inner_product_backward_data(
            it.rows, it.outputs, it.inner, dx=a["dx0"], dy=a["dy0"], w=a["w0"], accumulate=a.adds("dx0")
        )
    ]


def inner_product_scratch(layer: Any, roles: Collection[str]) -> int:
    it = plain(layer)
    if not it.by_rows:
        return turned.scratch(it, roles)
    weights = cpu.inner_product_backward_weights_workspace(it.rows, it.outputs, it.inner)
    return int(max(weights if "dw0" in roles else 0, cpu.column_sums_workspace(it.rows, it.outputs)))


@binds("InnerProduct.wgrad", "InnerProductReLU.wgrad", scratch=inner_product_scratch)
def inner_product_backward_weights(a: Args) -> list[Launch]:
    it = plain(a.layer)
    if not it.by_rows:
        return turned.backward_weights(a, it)
    launches: list[Launch] = []
    if a.has("dw0"):
        launches.append(
            cpu.inner_product_backward_weights(
                it.rows, it.outputs, it.inner, dw=a["dw0"], x=a["x0"], dy=a["dy0"], accumulate=a.adds("dw0"),
                scratch=a.scratch,
            )
        )  # fmt: skip
    if a.has("dw1"):
        launches.append(bias_gradient(a, it.rows, it.outputs, "dy0", a.adds("dw1")))
    return launches


# -- the gradient of a weight and its update in one --------------------------------------------------------------------


def learn_scratch(learned: Any, roles: Collection[str]) -> int:
    """As large as the gradient where that is summed in parts: then nothing is won by joining the two."""
    it = learned.inner
    if cpu.inner_product_backward_weights_workspace(it.rows, it.outputs, it.inner):
        return int(learned.parameter.tensor.nbytes)
    return int(cpu.column_sums_workspace(it.rows, it.outputs)) if "dw1" in roles else 0


@binds("InnerProduct.backward_update", scratch=learn_scratch)
def learn(a: Args) -> list[Launch] | None:
    it, parameter, rule = a.layer.inner, a.layer.parameter, a.layer.rule
    if cpu.inner_product_backward_weights_workspace(it.rows, it.outputs, it.inner):
        return None
    product = {"x": a["x0"], "dy": a["dy0"], **settings(a, parameter, rule)}
    launch = cpu.inner_product_learn(rule, it.rows, it.outputs, it.inner, **product)
    launches: list[Launch] = [Updating(a, parameter, rule, launch)]
    if a.has("dw1"):
        launches.append(bias_gradient(a, it.rows, it.outputs, "dy0", adds=False))
    return launches
