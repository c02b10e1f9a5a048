"""A weight's gradient and its update in one op (graph/fused_update.py): some rows of the gradient are summed into the
workspace and used up there, then the next ones."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from layermem.backends.cuda.kernels.channels import Columns, channel_sums
from layermem.backends.cuda.kernels.engine import ENGINES, Sliding, split_of, weigh
from layermem.backends.cuda.kernels.inner_product import product
from layermem.backends.cuda.kernels.update import updating
from layermem.backends.cuda.launch import Addresses, Launch, Scratch, kernel, workspace

BAND_BYTES = 2**26  # of gradient at a time: several waves of tiles
ROWS = 128  # of the tallest tile


def bands(g: Sliding) -> list[tuple[int, int]]:
    """(first row, rows) of each band of the gradient."""
    rows = max(1, BAND_BYTES // (4 * g.channels * ROWS)) * ROWS
    return [(first, min(rows, g.outputs - first)) for first in range(0, g.outputs, rows)]


@kernel("InnerProduct.backward_update")
def learn(learned: Any, b: Addresses) -> Iterator[Launch]:
    layer, parameter = learned.inner, learned.parameter
    whole, scratch = product(layer), Scratch(b["workspace"])
    split = split_of(whole)
    dw = scratch.take(band_bytes(whole))
    for first, rows in bands(whole):
        band = replace(whole, outputs=rows, out_pitch=whole.outputs)
        yield from weigh(
            ENGINES[b.precision], band, dw, b["dy0"] + 4 * first, b["x0"], False, scratch.next, split=split
        )
        at = 4 * first * whole.channels
        places = {role: b[role] + at for role in ("w0", "h0", "h1") if role in b}
        yield updating(learned.rule, parameter, rows * whole.channels, Addresses({**places, "dw0": dw}))
    if "dw1" in b:
        yield from channel_sums(Columns(layer.rows, layer.outputs), b["dw1"], b["dy0"], False, scratch.next)


@workspace("InnerProduct.backward_update")
def learn_bytes(learned: Any, roles: Collection[str]) -> int:
    whole, layer = product(learned.inner), learned.inner
    parts = split_of(whole).parts
    sums = Columns(layer.rows, layer.outputs).part_bytes() if "dw1" in roles else 0
    return band_bytes(whole) + max(parts * band_bytes(whole) if parts > 1 else 0, sums)


def band_bytes(g: Sliding) -> int:
    return 4 * g.channels * max(rows for _, rows in bands(g))
