"""Activations: one kernel per function and direction, which reads the record's alpha, beta and gamma."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypedDict

from layermem.backends.cuda.base import CudaCall, kernel
from layermem.backends.cuda.support.channel_sums import Columns, channel_sums
from layermem.backends.cuda.support.launch import Launch, ceil_div, divider, launch
from layermem.ops import Kind, Pointwise, PReLU, ReluMask, Tensor

PER_BLOCK = 2048  # elements: 256 threads with two groups of four each


class PointwiseParameters(TypedDict):
    alpha: float
    beta: float
    gamma: float


def parameters(alpha: float = 0.0, beta: float = 0.0, gamma: float = 0.0) -> PointwiseParameters:
    return {"alpha": alpha, "beta": beta, "gamma": gamma}


@kernel(Pointwise, "forward", narrow="x0|y0")
def pointwise_forward(op: Pointwise, call: CudaCall) -> Iterator[Launch]:
    function = f"{op.kind.value}_forward" + ("_mask" if "mask" in call else "") + call.suffix
    yield launch(
        "activation",
        function,
        "ForwardArgs",
        ceil_div(op.x.count, PER_BLOCK),
        y=call["y0"],
        x=call["x0"],
        mask=call["mask"],
        count=op.x.count,
        largest_zero=0.0,
        **parameters(op.alpha, op.beta, op.gamma),
    )


@kernel(Pointwise, "backward", narrow="x0|y0|dx0|dy0")
def pointwise_backward(op: Pointwise, call: CudaCall) -> Iterator[Launch]:
    if op.has_constant_slope:
        yield scale_gradient(op.x, call["dx0"], call["dy0"], op.alpha * op.beta, call.accumulates("dx0"), call.suffix)
        return
    if "mask" in call:
        function, source = "mask_backward", 0
        values = parameters(op.alpha if op.kind is Kind.RELU else 0.0)
    else:
        function, source = f"{op.kind.value}_backward", call.require("y0", "x0")
        values = parameters(op.alpha, op.beta, op.gamma)
    yield launch(
        "activation",
        function + call.suffix,
        "BackwardArgs",
        ceil_div(op.x.count, PER_BLOCK),
        dx=call["dx0"],
        dy=call["dy0"],
        source=source,
        mask=call["mask"],
        count=op.x.count,
        accumulate=call.accumulates("dx0"),
        **values,
    )


def scale_gradient(x: Tensor, dx: int, dy: int, factor: float, accumulate: bool, suffix: str = "") -> Launch:
    """dx = factor dy; `suffix` as in CudaCall."""
    return launch(
        "activation",
        f"scaled_backward{suffix}",
        "BackwardArgs",
        ceil_div(x.count, 2 * PER_BLOCK),
        dx=dx,
        dy=dy,
        source=0,
        mask=0,
        count=x.count,
        accumulate=accumulate,
        **parameters(factor),
    )


# -- the ReLU of a fused op --------------------------------------------------------------------------------------------


def relu_in_place(y: Tensor, address: int, mask: int, largest_zero: float) -> Launch:
    """y = max(y, 0), with its mask unless that address is 0."""
    return launch(
        "activation",
        "relu_forward_mask" if mask else "relu_forward",
        "ForwardArgs",
        ceil_div(y.count, PER_BLOCK),
        y=address,
        x=address,
        mask=mask,
        count=y.count,
        largest_zero=largest_zero,
        **parameters(),
    )


@kernel(ReluMask, "relu_backward", narrow="y0|dy0")
def apply_mask(op: ReluMask, call: CudaCall) -> Iterator[Launch]:
    function, source = ("mask_backward", 0) if "mask" in call else ("relu_backward", call.require("y0"))
    yield launch(
        "activation",
        function + call.suffix,
        "BackwardArgs",
        ceil_div(op.y.count, PER_BLOCK),
        dx=call["dy0"],
        dy=call["dy0"],
        source=source,
        mask=call["mask"],
        count=op.y.count,
        accumulate=False,
        **parameters(),
    )


# -- with a learned slope ----------------------------------------------------------------------------------------------


def prelu(op: PReLU, call: CudaCall, out: str, source: str) -> Launch:
    _, channels, inner = op.x.around(1)
    return launch(
        "activation",
        "prelu",
        "PreluArgs",
        ceil_div(op.x.count, PER_BLOCK),
        out=call[out],
        source=call[source],
        x=call["x0"],
        slopes=call["w0"],
        by_inner=divider(inner),
        by_channels=divider(1 if op.shared else channels),
        count=op.x.count,
        accumulate=call.accumulates(out),
    )


def slope_columns(op: PReLU) -> Columns:
    at = Columns(op.x.count, 1) if op.shared else Columns.of(op.x)
    return at.within(op.batch_slice)


def prelu_backward_workspace_bytes(op: PReLU, roles: Collection[str]) -> int:
    return slope_columns(op).part_bytes() if "dw0" in roles else 0


def prelu_carry_bytes(op: PReLU, role: str) -> int:
    return slope_columns(op).carry_bytes()


@kernel(PReLU, "forward")
def prelu_forward(op: PReLU, call: CudaCall) -> Iterator[Launch]:
    yield prelu(op, call, "y0", "x0")


@kernel(PReLU, "backward", workspace=prelu_backward_workspace_bytes, carry=prelu_carry_bytes)
def prelu_backward(op: PReLU, call: CudaCall) -> Iterator[Launch]:
    if call.sums("dw0"):  # before dx, which may overlay x or dy
        at, accumulate, memory = slope_columns(op), call.accumulates("dw0"), call.carry("dw0", call.workspace)
        yield from channel_sums(at, call["dw0"], call["dy0"], accumulate, memory, kind="_prelu", b=call["x0"])
    if "dx0" in call:
        yield prelu(op, call, "dx0", "dy0")
