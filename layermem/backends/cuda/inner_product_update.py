"""InnerProductUpdate: a weight gradient and its update in one op, band by band.

A band of rows of the gradient is computed in the workspace and consumed by the update rule before the next one, so the
whole gradient never exists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from layermem.backends.cuda.base import FLOAT, CudaCall, Workspace, kernel
from layermem.backends.cuda.inner_product import columns_of, conv_problem, narrow_blobs, whole_problem
from layermem.backends.cuda.products.warpgroup import engine_of
from layermem.backends.cuda.products.wgrad import conv_wgrad, split_of
from layermem.backends.cuda.support.channel_sums import Columns, channel_sums
from layermem.backends.cuda.support.launch import Launch
from layermem.backends.cuda.update import update
from layermem.ops import ConvProblem, InnerProductUpdate

BAND_BYTES = 2**26  # of the gradient at a time: several waves of tiles
ROWS = 128  # of the tallest tile


def bands(problem: ConvProblem) -> list[tuple[int, int]]:
    """(first row, number of rows) of each band of the gradient."""
    rows = max(1, BAND_BYTES // (FLOAT * problem.c * ROWS)) * ROWS
    return [(first, min(rows, problem.k - first)) for first in range(0, problem.k, rows)]


def band_bytes(problem: ConvProblem) -> int:
    return FLOAT * problem.c * max(rows for _, rows in bands(problem))


def backward_update_workspace_bytes(op: InnerProductUpdate, roles: Collection[str]) -> int:
    problem, parts = conv_problem(op.product), split_of(whole_problem(op.product)).parts
    bias = Columns(op.product.rows, op.product.outputs).part_bytes() if "dw1" in roles else 0
    return band_bytes(problem) + max(parts * band_bytes(problem) if parts > 1 else 0, bias)


@kernel(
    InnerProductUpdate,
    "backward_update",
    workspace=backward_update_workspace_bytes,
    narrow=lambda op: narrow_blobs(op.product),
)
def backward_update(op: InnerProductUpdate, call: CudaCall) -> Iterator[Launch]:
    problem, workspace = conv_problem(op.product), Workspace(call.workspace)
    whole, dy = whole_problem(op.product), columns_of(op.product, call["dy0"])
    dw = workspace.take(band_bytes(problem))
    for first, rows in bands(problem):
        yield from conv_wgrad(
            engine_of(call, "x0", whole),
            replace(problem, k=rows),
            dw,
            dy + call.itemsize * first,
            call["x0"],
            False,
            workspace.next,
            split=split_of(whole),
            maps_pitch=whole.k,
        )
        offset = FLOAT * first * problem.c
        addresses = {role: call[role] + offset for role in ("w0", "h0", "h1") if role in call}
        in_fp32 = replace(call, addresses={**addresses, "dw0": dw}, storage="", narrow=())
        yield update(op.update, rows * problem.c, in_fp32)
    if "dw1" in call:
        at = Columns(op.product.rows, op.product.outputs)
        yield from channel_sums(at, call["dw1"], call["dy0"], False, workspace.next, suffix=call.suffix)
