"""Eltwise, and the sum of gradients that a Split hands back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from layermem.backends.cuda.launch import Addresses, Launch, ceil_div, kernel, launch
from layermem.backends.cuda.shape import copy
from layermem.errors import InputError

MOST_INPUTS = 64  # as in cuda/eltwise.cu
PRODUCT_THREADS = 64


def combine(
    function: str, y: int, xs: Sequence[int], count: int, *, winner: int = 0, wide: bool = False,
    coefficients: Sequence[float] = (), mask: int = 0,
) -> Launch:  # fmt: skip
    check_inputs(len(xs))
    each = 2048 if function == "eltwise_sum_relu" else 1024
    return launch(
        "eltwise", function, "EltwiseArgs", ceil_div(count, each), y=y, winner=winner, mask=mask, x=xs,
        coefficients=coefficients or (1.0,) * len(xs), inputs=len(xs), count=count, wide=wide,
    )  # fmt: skip


def check_inputs(count: int) -> None:
    if count > MOST_INPUTS:
        raise InputError(f"combines {count} bottoms; the cuda device takes up to {MOST_INPUTS}: combine in two steps")


def all_of(b: Addresses, stem: str, count: int) -> list[int]:
    return [b[f"{stem}{i}"] for i in range(count)]


def wide(layer: Any) -> bool:
    return "winner" in layer.stash and layer.stash["winner"].dtype == "int32"


@kernel("Eltwise.forward")
def forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    xs, count = all_of(b, "x", len(layer.bottoms)), layer.tops[0].count
    if layer.operation == "SUM":
        yield combine("eltwise_sum", b["y0"], xs, count, coefficients=layer.coeffs)
    elif layer.operation == "PROD":
        yield combine("eltwise_product", b["y0"], xs, count)
    else:
        yield combine("eltwise_max", b["y0"], xs, count, winner=b["winner"], wide=wide(layer))


@kernel("Eltwise.backward")
def backward(layer: Any, b: Addresses) -> Iterator[Launch]:
    wanted = [i for i in range(len(layer.bottoms)) if f"dx{i}" in b]
    if layer.operation == "PROD":
        yield product_backward(layer, b, wanted)
        return
    for i in sorted(wanted, key=lambda i: b[f"dx{i}"] == b["dy0"]):  # what lies on dy comes last
        if layer.operation == "SUM":
            yield from scaled(layer, b, f"dx{i}", layer.coeffs[i])
        else:
            count = layer.tops[0].count
            yield launch(
                "eltwise", "eltwise_max_backward", "MaxBackwardArgs", ceil_div(count, 1024), dx=b[f"dx{i}"],
                dy=b["dy0"], winner=b["winner"], which=i, count=count, wide=wide(layer),
                accumulate=b.accumulates(f"dx{i}"),
            )  # fmt: skip


def scaled(layer: Any, b: Addresses, dx: str, factor: float) -> Iterator[Launch]:
    """dx = factor dy"""
    count = layer.tops[0].count
    if factor == 1:
        yield from copy(b[dx], b["dy0"], count, b.accumulates(dx))
        return
    yield launch(
        "activation", "scaled_backward", "BackwardArgs", ceil_div(count, 4096), dx=b[dx], dy=b["dy0"], source=0, mask=0,
        count=count, accumulate=b.accumulates(dx), a=factor, b=0.0, c=0.0,
    )  # fmt: skip


def product_backward(layer: Any, b: Addresses, wanted: Sequence[int]) -> Launch:
    inputs, count = len(layer.bottoms), layer.tops[0].count
    if inputs > MOST_INPUTS:
        raise InputError(
            f"multiplies {inputs} bottoms; the cuda device takes up to {MOST_INPUTS}: multiply in two steps"
        )
    return launch(
        "eltwise", "eltwise_product_backward", "ProductBackwardArgs", ceil_div(count, PRODUCT_THREADS), PRODUCT_THREADS,
        shared=4 * PRODUCT_THREADS * inputs, dx=all_of(b, "dx", inputs), x=all_of(b, "x", inputs), dy=b["dy0"],
        accumulates=sum(1 << i for i in wanted if b.accumulates(f"dx{i}")), inputs=inputs, count=count,
    )  # fmt: skip


@kernel("Split.backward")
def split_backward(layer: Any, b: Addresses) -> Iterator[Launch]:
    dys = all_of(b, "dy", len(layer.tops))
    count = layer.tops[0].count
    if b.accumulates("dx0"):
        dys = [b["dx0"], *dys]
    if len(dys) == 1:
        yield from copy(b["dx0"], dys[0], count)
    else:
        yield combine("eltwise_sum", b["dx0"], dys, count)


# -- with a ReLU ------------------------------------------------------------------------------------------------------


@kernel("EltwiseReLU.forward")
def rectified_forward(layer: Any, b: Addresses) -> Iterator[Launch]:
    xs, count = all_of(b, "x", len(layer.bottoms)), layer.tops[0].count
    yield combine("eltwise_sum_relu", b["y0"], xs, count, coefficients=layer.inner.coeffs, mask=b["mask"])


@kernel("EltwiseReLU.backward")
def rectified_backward(layer: Any, b: Addresses) -> Iterator[Launch]:
    inputs, count = len(layer.bottoms), layer.tops[0].count
    check_inputs(inputs)
    yield launch(
        "eltwise", "eltwise_sum_relu_backward", "SumBackwardArgs", ceil_div(count, 2048), dx=all_of(b, "dx", inputs),
        coefficients=layer.inner.coeffs, dy=b["dy0"], y=b["y0"], mask=b["mask"],
        accumulates=sum(1 << i for i in range(inputs) if b.accumulates(f"dx{i}")), inputs=inputs, count=count,
    )  # fmt: skip
