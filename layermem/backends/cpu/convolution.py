"""Conv and Deconv: fprop, dgrad and wgrad of one ConvProblem, as implicit GEMMs.

A Deconv is the problem read backwards: its forward is the problem's dgrad, its dgrad the problem's fprop, and in its
wgrad x holds the maps and dy the image.
"""

from __future__ import annotations

from collections.abc import Collection

from layermem._native import cpu
from layermem.backends.cpu.base import CpuCall, Launch, Launches, kernel
from layermem.ops import Conv, ConvProblem, Deconv, Tensor


def native(problem: ConvProblem) -> cpu.ConvProblem:
    return cpu.ConvProblem(
        n=problem.n, c=problem.c, h=problem.h, w=problem.w, k=problem.k, kernel=problem.kernel, stride=problem.stride,
        pad=problem.pad, dilation=problem.dilation, groups=problem.groups,
    )  # fmt: skip


def fprop_workspace_bytes(op: Conv | Deconv, roles: Collection[str]) -> int:
    return cpu.conv_fprop_workspace_bytes(native(op.problem))


def dgrad_workspace_bytes(op: Conv | Deconv, roles: Collection[str]) -> int:
    return cpu.conv_dgrad_workspace_bytes(native(op.problem))


def wgrad_workspace_bytes(op: Conv | Deconv, roles: Collection[str]) -> int:
    weights = cpu.conv_wgrad_workspace_bytes(native(op.problem)) if "dw0" in roles else 0
    bias = cpu.column_sums_workspace_bytes(*rows_and_columns(top_of(op))) if "dw1" in roles else 0
    return max(weights, bias)


def top_of(op: Conv | Deconv) -> Tensor:
    return op.problem.maps if isinstance(op, Conv) else op.problem.image


def rows_and_columns(top: Tensor) -> tuple[int, int]:
    """A top as the matrix whose column sums are the gradient of the bias."""
    return top.count // top.shape[1], top.shape[1]


def pairs(op: Conv | Deconv, call: CpuCall, stem: str) -> list[int]:
    return [i for i in range(op.pairs) if f"{stem}{i}" in call]


def bias_gradient(call: CpuCall, rows: int, columns: int, dy: str, accumulate: bool) -> Launch:
    return cpu.column_sums(rows, columns, out=call["dw1"], x=call[dy], accumulate=accumulate, workspace=call.workspace)


@kernel(Conv, "forward", workspace=fprop_workspace_bytes)
def convolution_fprop(op: Conv, call: CpuCall) -> Launches:
    if op.residual:
        return None
    problem = native(op.problem)
    return [
        cpu.conv_fprop(
            problem, y=call[f"y{i}"], x=call[f"x{i}"], w=call["w0"], bias=call["w1"], relu=op.relu, mask=call["mask"],
            workspace=call.workspace,
        )
        for i in pairs(op, call, "x")
    ]  # fmt: skip


@kernel(Conv, "dgrad", workspace=dgrad_workspace_bytes)
def convolution_dgrad(op: Conv, call: CpuCall) -> list[Launch]:
    problem = native(op.problem)
    return [
        cpu.conv_dgrad(
            problem, dx=call[f"dx{i}"], dy=call[f"dy{i}"], w=call["w0"], accumulate=call.accumulates(f"dx{i}"),
            workspace=call.workspace,
        )
        for i in pairs(op, call, "dx")
    ]  # fmt: skip


@kernel(Conv, "wgrad", workspace=wgrad_workspace_bytes)
def convolution_wgrad(op: Conv, call: CpuCall) -> list[Launch]:
    return wgrad(op, call, maps="dy", image="x")


@kernel(Deconv, "forward", workspace=dgrad_workspace_bytes)
def deconvolution_fprop(op: Deconv, call: CpuCall) -> list[Launch]:
    problem = native(op.problem)
    return [
        cpu.conv_dgrad(
            problem, dx=call[f"y{i}"], dy=call[f"x{i}"], w=call["w0"], bias=call["w1"], workspace=call.workspace
        )
        for i in pairs(op, call, "x")
    ]


@kernel(Deconv, "dgrad", workspace=fprop_workspace_bytes)
def deconvolution_dgrad(op: Deconv, call: CpuCall) -> list[Launch]:
    problem = native(op.problem)
    return [
        cpu.conv_fprop(
            problem, y=call[f"dx{i}"], x=call[f"dy{i}"], w=call["w0"], accumulate=call.accumulates(f"dx{i}"),
            workspace=call.workspace,
        )
        for i in pairs(op, call, "dx")
    ]  # fmt: skip


@kernel(Deconv, "wgrad", workspace=wgrad_workspace_bytes)
def deconvolution_wgrad(op: Deconv, call: CpuCall) -> list[Launch]:
    return wgrad(op, call, maps="x", image="dy")


def wgrad(op: Conv | Deconv, call: CpuCall, *, maps: str, image: str) -> list[Launch]:
    """Gradients of filter and bias, summed over the pairs; `image` and `maps` are the roles of the problem's sides."""
    problem, launches = native(op.problem), list[Launch]()
    for number, i in enumerate(pairs(op, call, "dy")):
        if "dw0" in call:
            launches.append(
                cpu.conv_wgrad(
                    problem, dw=call["dw0"], x=call[f"{image}{i}"], dy=call[f"{maps}{i}"],
                    accumulate=number > 0 or call.accumulates("dw0"), workspace=call.workspace,
                )
            )  # fmt: skip
        if "dw1" in call:
            accumulate = number > 0 or call.accumulates("dw1")
            launches.append(bias_gradient(call, *rows_and_columns(top_of(op)), f"dy{i}", accumulate))
    return launches
