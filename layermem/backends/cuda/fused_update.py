"""Fused update: the weight gradient of an InnerProduct and its update in one op (graph/fused_update.py), band by band.

A band of rows of the gradient is computed in the workspace and consumed by the update rule before the next one, so the
whole gradient never exists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from layermem.backends.cuda.channel_sums import Columns, channel_sums
from layermem.backends.cuda.implicit_gemm import ENGINES, ConvProblem, conv_wgrad, split_of
from layermem.backends.cuda.inner_product import conv_problem
from layermem.backends.cuda.launch import Addresses, Launch, Workspace, kernel, workspace_bytes
from layermem.backends.cuda.update import update

BAND_BYTES = 2**26  # of gradient at once: several waves of tiles
ROWS = 128  # of the tallest tile


def bands(problem: ConvProblem) -> list[tuple[int, int]]:
    """(first row, rows) of each band of the gradient."""
    rows = max(1, BAND_BYTES // (4 * problem.channels * ROWS)) * ROWS
    return [(first, min(rows, problem.outputs - first)) for first in range(0, problem.outputs, rows)]


@kernel("InnerProduct.backward_update")
def backward_update(fused: Any, b: Addresses) -> Iterator[Launch]:
    layer, parameter = fused.inner, fused.parameter
    whole, workspace = conv_problem(layer), Workspace(b["workspace"])
    split = split_of(whole)
    dw = workspace.take(band_bytes(whole))
    for first, rows in bands(whole):
        band = replace(whole, outputs=rows, out_pitch=whole.outputs)
        yield from conv_wgrad(
            ENGINES[b.precision], band, dw, b["dy0"] + 4 * first, b["x0"], False, workspace.next, split=split
        )
        offset = 4 * first * whole.channels
        addresses = {role: b[role] + offset for role in ("w0", "h0", "h1") if role in b}
        yield update(fused.rule, parameter, rows * whole.channels, Addresses({**addresses, "dw0": dw}))
    if "dw1" in b:
        yield from channel_sums(Columns(layer.rows, layer.outputs), b["dw1"], b["dy0"], False, workspace.next)


@workspace_bytes("InnerProduct.backward_update")
def backward_update_bytes(fused: Any, roles: Collection[str]) -> int:
    whole, layer = conv_problem(fused.inner), fused.inner
    parts = split_of(whole).parts
    sums = Columns(layer.rows, layer.outputs).part_bytes() if "dw1" in roles else 0
    return band_bytes(whole) + max(parts * band_bytes(whole) if parts > 1 else 0, sums)


def band_bytes(problem: ConvProblem) -> int:
    return 4 * problem.channels * max(rows for _, rows in bands(problem))
