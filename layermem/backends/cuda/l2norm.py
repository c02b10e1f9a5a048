"""L2Norm: sums over the elements that share a norm, then one thread per element."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from layermem.backends.cuda.base import FLOAT, CudaCall, Workspace, kernel, sums_role
from layermem.backends.cuda.support.channel_sums import Columns, merge_parts
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, divider, launch
from layermem.ops import L2Norm

WARPS = 8  # per block
WARP_MEMBERS = 512  # limit of the elements that one warp sums


def members(op: L2Norm) -> int:
    """Elements that share a norm."""
    return op.group * op.channels


def scale_columns(op: L2Norm) -> Columns:
    at = Columns(op.x.count, 1) if op.shared else Columns(op.pixels, op.channels)
    return at.within(op.batch_slice)


def norm_launch(function: str, grid: int, op: L2Norm, call: CudaCall, y: int, dy: int, sums: int) -> Launch:
    return launch(
        "l2norm",
        function,
        "L2NormArgs",
        grid,
        y=y,
        x=call["x0"],
        dy=dy,
        scale=call["w0"],
        sums=sums,
        by_norm=divider(members(op)),
        by_channels=divider(1 if op.shared else op.channels),
        norms=op.x.count // members(op),
        count=op.x.count,
        accumulate=call.accumulates("dx0"),
        eps=op.eps,
    )


def l2norm_sums(op: L2Norm, call: CudaCall, dy: int, sums: int) -> Launch:
    norms = op.x.count // members(op)
    if members(op) <= WARP_MEMBERS:
        return norm_launch("l2norm_sums_of_warp", ceil_div(norms, WARPS), op, call, 0, dy, sums)
    return norm_launch("l2norm_sums_of_block", norms, op, call, 0, dy, sums)


def sums_bytes(op: L2Norm) -> int:
    return 2 * FLOAT * (op.x.count // members(op))


def l2norm_workspace_bytes(op: L2Norm, roles: Collection[str]) -> int:
    workspace = Workspace()
    workspace.take(sums_bytes(op))
    at = scale_columns(op)
    if sums_role("dw0", roles) and at.parts > 1:
        workspace.take(at.part_bytes())
    return workspace.nbytes


def scale_carry_bytes(op: L2Norm, role: str) -> int:
    return scale_columns(op).carry_bytes()


@kernel(L2Norm, "forward", workspace=l2norm_workspace_bytes)
def l2norm_forward(op: L2Norm, call: CudaCall) -> Iterator[Launch]:
    yield l2norm_sums(op, call, 0, call.workspace)
    yield norm_launch("norm_forward", ceil_div(op.x.count, THREADS), op, call, call["y0"], 0, call.workspace)


@kernel(L2Norm, "backward", workspace=l2norm_workspace_bytes, carry=scale_carry_bytes)
def l2norm_backward(op: L2Norm, call: CudaCall) -> Iterator[Launch]:
    workspace = Workspace(call.workspace)
    sums = workspace.take(sums_bytes(op))
    yield l2norm_sums(op, call, call["dy0"] if "dx0" in call else 0, sums)
    if call.sums("dw0"):  # before dx, which may overlay x or dy
        yield from scale_sums(op, call, sums, workspace)
    if "dx0" in call:
        yield norm_launch("norm_backward", ceil_div(op.x.count, THREADS), op, call, call["dx0"], call["dy0"], sums)


def scale_sums(op: L2Norm, call: CudaCall, sums: int, workspace: Workspace) -> Iterator[Launch]:
    at, dw, accumulate, one = scale_columns(op), call["dw0"], call.accumulates("dw0"), scale_columns(op).parts == 1
    parts, open_sums = at.carried(call.carry("dw0")) if at.here else (workspace.take(at.part_bytes()), 0)
    for grid, struct in at.runs(open_sums):
        yield launch(
            "l2norm",
            f"norm_scale_sums_v{at.v}",
            "NormScaleArgs",
            grid,
            y=dw if one else parts,
            x=call["x0"],
            dy=call["dy0"],
            sums=sums,
            at=struct,
            by_norm=divider(members(op)),
            accumulate=accumulate and one,
        )
    if at.ends_here and not one:
        yield merge_parts(at.parts, at.columns, dw, parts, accumulate)
