"""Conv and Deconv: fprop, dgrad and wgrad of one ConvProblem, as implicit GEMMs.

A Deconv is the reverse problem: its forward is the problem's dgrad, its dgrad the problem's fprop, and in its
wgrad x holds the maps and dy the image.
"""

from __future__ import annotations

from collections.abc import Collection

from layermem.backends.cpu.base import CpuCall, Launch, Launches, kernel
from layermem.backends.cpu.support import slices
from layermem.backends.cpu.support.launch import launch, query
from layermem.backends.struct_layout import StructValues
from layermem.ops import CARRY, BatchSlice, Conv, ConvProblem, Deconv, OpRecord, Tensor


def conv_problem(
    *,
    n: int,
    c: int,
    h: int,
    w: int,
    k: int,
    kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int] = (0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    first: int = 0,
    items: int = 0,
) -> StructValues:
    """A ConvProblem of the native kernels."""
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = kernel, stride, pad, dilation
    windows = {"kh": kh, "kw": kw, "sh": sh, "sw": sw, "ph": ph, "pw": pw, "dh": dh, "dw": dw}
    return {"n": n, "c": c, "h": h, "w": w, "k": k, **windows, "groups": groups, "first": first, "items": items}


def native(problem: ConvProblem, batch_slice: BatchSlice | None = None) -> StructValues:
    """The native form of `problem`, which has the images of `batch_slice`: one or more per item."""
    each = problem.n // batch_slice.count if batch_slice else 1
    first, items = (each * batch_slice.first, each * batch_slice.items) if batch_slice else (0, problem.n)
    return conv_problem(
        n=problem.n,
        c=problem.c,
        h=problem.h,
        w=problem.w,
        k=problem.k,
        kernel=problem.kernel,
        stride=problem.stride,
        pad=problem.pad,
        dilation=problem.dilation,
        groups=problem.groups,
        first=first,
        items=items,
    )


def fprop_workspace_bytes(op: Conv | Deconv, roles: Collection[str]) -> int:
    return query("conv_fprop_workspace_bytes", native(op.problem, op.batch_slice))


def dgrad_workspace_bytes(op: Conv | Deconv, roles: Collection[str]) -> int:
    return query("conv_dgrad_workspace_bytes", native(op.problem, op.batch_slice))


def wgrad_workspace_bytes(op: Conv | Deconv, roles: Collection[str]) -> int:
    weights = bias = 0
    if "dw0" in roles or "dw0" + CARRY in roles:
        weights = query("conv_wgrad_workspace_bytes", native(op.problem, op.batch_slice))
    if "dw1" in roles or "dw1" + CARRY in roles:
        bias = slices.column_sums_workspace_bytes(op, *rows_and_columns(top_of(op)))
    return max(weights, bias)


def wgrad_carry_bytes(op: Conv | Deconv, role: str) -> int | None:
    """Bytes for one pair: with several, the sums of one pair would have to continue those of another."""
    if op.pairs > 1:
        return None
    if role == "dw1":
        return slices.column_sums_carry_bytes(op, *rows_and_columns(top_of(op)))
    return query("conv_wgrad_carry_bytes", native(op.problem, op.batch_slice)) or op.problem.filter.nbytes


def wgrad_in_place(op: Conv | Deconv, role: str) -> bool:
    if role == "dw1":
        return slices.column_sums_in_place(op, *rows_and_columns(top_of(op)))
    return not query("conv_wgrad_carry_bytes", native(op.problem, op.batch_slice))


def top_of(op: Conv | Deconv) -> Tensor:
    return op.problem.maps if isinstance(op, Conv) else op.problem.image


def rows_and_columns(top: Tensor) -> tuple[int, int]:
    """A top as the matrix whose column sums are the gradient of the bias."""
    return top.count // top.shape[1], top.shape[1]


def pairs(op: Conv | Deconv, call: CpuCall, stem: str) -> list[int]:
    return [i for i in range(op.pairs) if f"{stem}{i}" in call]


def bias_gradient(op: OpRecord, call: CpuCall, rows: int, columns: int, dy: str, accumulate: bool) -> list[Launch]:
    return slices.column_sums(op, call, "dw1", rows, columns, call[dy], accumulate, call.workspace, call.storage_of(dy))


def narrow_fprop(op: Conv | Deconv) -> list[str]:
    """Roles that may be in 16 bits.  The data of a net are in fp32."""
    if (isinstance(op, Conv) and op.residual) or not query("conv_is_stored", native(op.problem, op.batch_slice)):
        return []
    return [r"x\d+|y\d+", r"y\d+"] if isinstance(op, Conv) else [r"x\d+|y\d+"]


def narrow_dgrad(op: Conv | Deconv) -> str:
    return r"dx\d+|dy\d+" if query("conv_is_stored", native(op.problem, op.batch_slice)) else ""


def narrow_wgrad(op: Conv | Deconv) -> list[str]:
    """Roles that may be in 16 bits; slices sum the gradient of a bias from blobs in fp32."""
    if not query("conv_is_stored", native(op.problem, op.batch_slice)) or slices.is_slice(op):
        return []
    return [r"x\d+|dy\d+", r"dy\d+"] if isinstance(op, Conv) else [r"x\d+|dy\d+"]


@kernel(Conv, "forward", workspace=fprop_workspace_bytes, narrow=narrow_fprop)
def convolution_fprop(op: Conv, call: CpuCall) -> Launches:
    if op.residual:
        return None
    problem = native(op.problem, op.batch_slice)
    return [
        launch(
            "conv_fprop",
            problem,
            y=call[f"y{i}"],
            x=call[f"x{i}"],
            w=call["w0"],
            bias=call["w1"],
            relu=op.relu,
            bits=call["mask"],
            largest_zero=op.largest_zero,
            workspace=call.workspace,
            of_x=call.storage_of(f"x{i}"),
            of_y=call.storage_of(f"y{i}"),
        )
        for i in pairs(op, call, "x")
    ]


@kernel(Conv, "dgrad", workspace=dgrad_workspace_bytes, narrow=narrow_dgrad, adds_narrow=True)
def convolution_dgrad(op: Conv, call: CpuCall) -> list[Launch]:
    problem = native(op.problem, op.batch_slice)
    return [
        launch(
            "conv_dgrad",
            problem,
            dx=call[f"dx{i}"],
            dy=call[f"dy{i}"],
            w=call["w0"],
            accumulate=call.accumulates(f"dx{i}"),
            workspace=call.workspace,
            storage=call.storage,
        )
        for i in pairs(op, call, "dx")
    ]


@kernel(
    Conv,
    "wgrad",
    workspace=wgrad_workspace_bytes,
    carry=wgrad_carry_bytes,
    in_place=wgrad_in_place,
    narrow=narrow_wgrad,
)
def convolution_wgrad(op: Conv, call: CpuCall) -> list[Launch]:
    return wgrad(op, call, maps="dy", image="x")


@kernel(Deconv, "forward", workspace=dgrad_workspace_bytes, narrow=narrow_fprop)
def deconvolution_fprop(op: Deconv, call: CpuCall) -> list[Launch]:
    problem = native(op.problem, op.batch_slice)
    return [
        launch(
            "conv_dgrad",
            problem,
            dx=call[f"y{i}"],
            dy=call[f"x{i}"],
            w=call["w0"],
            bias=call["w1"],
            workspace=call.workspace,
            storage=call.storage,
        )
        for i in pairs(op, call, "x")
    ]


@kernel(Deconv, "dgrad", workspace=fprop_workspace_bytes, narrow=narrow_dgrad, adds_narrow=True)
def deconvolution_dgrad(op: Deconv, call: CpuCall) -> list[Launch]:
    problem = native(op.problem, op.batch_slice)
    return [
        launch(
            "conv_fprop",
            problem,
            y=call[f"dx{i}"],
            x=call[f"dy{i}"],
            w=call["w0"],
            accumulate=call.accumulates(f"dx{i}"),
            workspace=call.workspace,
            of_x=call.storage,
            of_y=call.storage,
        )
        for i in pairs(op, call, "dx")
    ]


@kernel(
    Deconv,
    "wgrad",
    workspace=wgrad_workspace_bytes,
    carry=wgrad_carry_bytes,
    in_place=wgrad_in_place,
    narrow=narrow_wgrad,
)
def deconvolution_wgrad(op: Deconv, call: CpuCall) -> list[Launch]:
    return wgrad(op, call, maps="x", image="dy")


def wgrad(op: Conv | Deconv, call: CpuCall, *, maps: str, image: str) -> list[Launch]:
    """Compute gradients of filter and bias, summed over the pairs; `image` and `maps` are roles of the problem's
    sides."""
    problem, launches = native(op.problem, op.batch_slice), list[Launch]()
    in_place = not query("conv_wgrad_carry_bytes", problem)
    for number, i in enumerate(pairs(op, call, "dy")):
        if "dw0" in call or "dw0" + CARRY in call:
            dw, accumulate = call["dw0"], call.accumulates("dw0")
            if in_place:
                dw, accumulate, before = slices.sum_in_place(op, call, "dw0", op.problem.filter.count)
                launches += before
            launches.append(
                launch(
                    "conv_wgrad",
                    problem,
                    dw=dw,
                    x=call[f"{image}{i}"],
                    dy=call[f"{maps}{i}"],
                    accumulate=number > 0 or accumulate,
                    workspace=call.workspace,
                    carry=call["dw0" + CARRY],
                    of_x=call.storage_of(f"{image}{i}"),
                    of_dy=call.storage_of(f"{maps}{i}"),
                )
            )
        if "dw1" in call or "dw1" + CARRY in call:
            accumulate = number > 0 or call.accumulates("dw1")
            launches += bias_gradient(op, call, *rows_and_columns(top_of(op)), f"dy{i}", accumulate)
    return launches
