"""Eltwise: bottoms combined element by element, with or without a ReLU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from layermem.backends.cuda.activation import scale_gradient
from layermem.backends.cuda.base import CudaCall, kernel
from layermem.backends.cuda.copy import copy
from layermem.backends.cuda.support.launch import Launch, ceil_div, launch
from layermem.errors import InputError
from layermem.ops import Eltwise, ResidualGrad

MAX_INPUTS = 64  # as in cuda/eltwise.cu
PRODUCT_THREADS = 64
PER_BLOCK = 1024  # elements; twice as many with a ReLU


def combine(
    function: str,
    y: int,
    xs: Sequence[int],
    count: int,
    *,
    winner: int = 0,
    wide: bool = False,
    coefficients: Sequence[float] = (),
    mask: int = 0,
    largest_zero: float = 0.0,
    suffix: str = "",
) -> Launch:
    """`largest_zero` as in the record (ops.EndsInRelu); `suffix` as in CudaCall."""
    check_inputs(len(xs))
    per_block = 2 * PER_BLOCK if function == "eltwise_sum_relu" else PER_BLOCK
    return launch(
        "eltwise",
        function + suffix,
        "EltwiseArgs",
        ceil_div(count, per_block),
        y=y,
        winner=winner,
        mask=mask,
        x=xs,
        coefficients=coefficients or (1.0,) * len(xs),
        inputs=len(xs),
        count=count,
        wide=wide,
        largest_zero=largest_zero,
    )


def sum_blobs(y: int, xs: Sequence[int], count: int, suffix: str = "") -> Launch:
    """y = x0 + x1 + ..  Every element is read before it is written, so y may be one of xs."""
    return combine("eltwise_sum", y, xs, count, suffix=suffix)


def check_inputs(count: int) -> None:
    if count > MAX_INPUTS:
        raise InputError(f"combines {count} bottoms; the cuda device takes up to {MAX_INPUTS}: combine in two steps")


def addresses(call: CudaCall, stem: str, count: int) -> list[int]:
    """The addresses of stem0, stem1, ..; 0 for roles that the op does not have."""
    return [call[f"{stem}{i}"] for i in range(count)]


def wide(op: Eltwise) -> bool:
    """Whether the index of the winning bottom takes an int instead of a byte."""
    return op.bottoms > 256


@kernel(Eltwise, "forward", narrow=r"x\d+|y0")
def eltwise_forward(op: Eltwise, call: CudaCall) -> Iterator[Launch]:
    xs, y, count, suffix = addresses(call, "x", op.bottoms), call["y0"], op.x.count, call.suffix
    if op.relu:
        yield combine(
            "eltwise_sum_relu",
            y,
            xs,
            count,
            coefficients=op.coeffs,
            mask=call["mask"],
            largest_zero=op.largest_zero,
            suffix=suffix,
        )
    elif op.operation == "SUM":
        yield combine("eltwise_sum", y, xs, count, coefficients=op.coeffs, suffix=suffix)
    elif op.operation == "PROD":
        yield combine("eltwise_product", y, xs, count, suffix=suffix)
    else:
        yield combine("eltwise_max", y, xs, count, winner=call["winner"], wide=wide(op), suffix=suffix)


@kernel(Eltwise, "backward", narrow=r"x\d+|y0|dx\d+|dy0")
def eltwise_backward(op: Eltwise, call: CudaCall) -> Iterator[Launch]:
    if op.relu:
        yield sum_relu_backward(op, call)
    elif op.operation == "PROD":
        yield product_backward(op, call)
    else:
        wanted = [i for i in range(op.bottoms) if f"dx{i}" in call]
        for i in sorted(wanted, key=lambda i: call[f"dx{i}"] == call["dy0"]):  # a gradient that overlays dy comes last
            yield from sum_backward(op, call, i) if op.operation == "SUM" else max_backward(op, call, i)


def sum_backward(op: Eltwise, call: CudaCall, i: int) -> Iterator[Launch]:
    dx, dy, accumulate = call[f"dx{i}"], call["dy0"], call.accumulates(f"dx{i}")
    if op.coeffs[i] == 1:
        yield from copy(dx, dy, op.x.count, accumulate, call.storage)
    else:
        yield scale_gradient(op.x, dx, dy, op.coeffs[i], accumulate, call.suffix)


def max_backward(op: Eltwise, call: CudaCall, i: int) -> Iterator[Launch]:
    yield launch(
        "eltwise",
        f"eltwise_max_backward{call.suffix}",
        "MaxBackwardArgs",
        ceil_div(op.x.count, PER_BLOCK),
        dx=call[f"dx{i}"],
        dy=call["dy0"],
        winner=call["winner"],
        which=i,
        count=op.x.count,
        wide=wide(op),
        accumulate=call.accumulates(f"dx{i}"),
    )


def product_backward(op: Eltwise, call: CudaCall) -> Launch:
    check_inputs(op.bottoms)
    return launch(
        "eltwise",
        f"eltwise_product_backward{call.suffix}",
        "ProductBackwardArgs",
        ceil_div(op.x.count, PRODUCT_THREADS),
        PRODUCT_THREADS,
        shared=4 * PRODUCT_THREADS * op.bottoms,
        dx=addresses(call, "dx", op.bottoms),
        x=addresses(call, "x", op.bottoms),
        dy=call["dy0"],
        accumulates=accumulating_inputs(op, call),
        inputs=op.bottoms,
        count=op.x.count,
    )


def sum_relu_backward(op: Eltwise, call: CudaCall) -> Launch:
    check_inputs(op.bottoms)
    return launch(
        "eltwise",
        f"eltwise_sum_relu_backward{call.suffix}",
        "SumBackwardArgs",
        ceil_div(op.x.count, 2 * PER_BLOCK),
        dx=addresses(call, "dx", op.bottoms),
        coefficients=op.coeffs,
        dy=call["dy0"],
        y=call["y0"],
        mask=call["mask"],
        accumulates=accumulating_inputs(op, call),
        inputs=op.bottoms,
        count=op.x.count,
    )


def accumulating_inputs(op: Eltwise, call: CudaCall) -> int:
    """A bit mask of the inputs i whose dx_i is accumulated."""
    return sum(1 << i for i in range(op.bottoms) if call.accumulates(f"dx{i}"))


@kernel(ResidualGrad, "residual_backward", narrow="dx1|dy0")
def residual_backward(op: ResidualGrad, call: CudaCall) -> Iterator[Launch]:
    yield from copy(call["dx1"], call["dy0"], op.x.count, call.accumulates("dx1"), call.storage)
