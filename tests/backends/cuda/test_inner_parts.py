"""Inner products of few rows: sums in parts, which are added in their order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from layermem.backends.cuda import cuda_kernels
from layermem.backends.cuda.device import CudaDevice
from layermem.backends.cuda.products import inner_parts, narrow_products
from layermem.backends.cuda.products.inner_parts import (
    DGRAD,
    FPROP,
    MAX_ROWS,
    DepthParts,
    dgrad_parts,
    forward_parts,
    parts_of,
    whole_rows,
)
from layermem.ops import NARROW, BatchSlice, InnerProduct, RowBand
from tests.backends.cuda.harness import PLAIN, Memory, layer_of, run_op
from tests.cases.inner_product import IN_PARTS

ROLES = {"forward": ("x0", "w0", "w1", "y0"), "dgrad": ("dy0", "w0", "dx0")}
PRECISIONS = ("fp32", "tf32")


def product(rows: int, inner: int, outputs: int) -> InnerProduct:
    record = layer_of(f'type: "InnerProduct" inner_product_param {{ num_output: {outputs} }}', (rows, inner)).record
    assert isinstance(record, InnerProduct)
    return record


class Operands:
    """Of an inner product, and its results on emulated kernels."""

    def __init__(self, op: InnerProduct, rng: np.random.Generator, precision: str = "fp32"):
        self.op, self.way, self.memory = op, replace(PLAIN, precision=precision), Memory()
        self.x, self.w, self.dy = (
            self.stored(rng.standard_normal(shape))
            for shape in ((op.rows, op.inner), (op.outputs, op.inner), (op.rows, op.outputs))
        )
        self.bias = self.stored(rng.standard_normal(op.outputs))

    def stored(self, values: np.ndarray) -> np.ndarray:
        return self.memory.stored(values, np.float32)

    def forward(self, op: InnerProduct, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        y = self.stored(np.full((op.rows, op.outputs), np.nan))
        given = {"x0": x, "w0": w, "y0": y} | ({} if bias is None else {"w1": bias})
        run_op(op, "forward", given, way=self.way)
        return y

    def dgrad(self, op: InnerProduct, dy: np.ndarray, w: np.ndarray, dx: np.ndarray, accumulates=()) -> np.ndarray:
        run_op(op, "dgrad", {"dy0": dy, "w0": w, "dx0": dx}, accumulates=accumulates, way=self.way)
        return dx

    def empty_dx(self) -> np.ndarray:
        return self.stored(np.full(self.x.shape, np.nan))


def in_order(parts: list[np.ndarray]) -> np.ndarray:
    """Their sum in fp32, one after the other."""
    total = parts[0].copy()
    for part in parts[1:]:
        total = total + part
    return total


def in_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inner_parts, "parts_of", lambda product, rows, columns, depth: DepthParts(1, depth))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_forward_adds_its_parts_in_their_order_and_then_the_bias(precision, rng, monkeypatch):
    op = product(5, 512, 24)
    own = Operands(op, rng, precision)
    y, (count, depth) = own.forward(op, own.x, own.w, own.bias), forward_parts(op)
    assert count > 1
    in_one_part(monkeypatch)
    part = product(5, depth, 24)
    parts = [
        own.forward(part, own.stored(own.x[:, k : k + depth]), own.stored(own.w[:, k : k + depth]), None)
        for k in range(0, 512, depth)
    ]
    assert y.tobytes() == (in_order(parts) + own.bias).tobytes()
    own.memory.check()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_gradient_adds_its_parts_in_their_order_and_then_what_is_there(precision, rng, monkeypatch):
    op = product(5, 24, 512)
    own, (count, depth) = Operands(op, rng, precision), dgrad_parts(op)
    assert count > 1
    dx = own.dgrad(op, own.dy, own.w, own.empty_dx())
    before = own.stored(rng.standard_normal(own.x.shape))
    added = own.dgrad(op, own.dy, own.w, own.stored(before), accumulates=("dx0",))
    in_one_part(monkeypatch)
    part = product(5, 24, depth)
    parts = [
        own.dgrad(part, own.stored(own.dy[:, k : k + depth]), own.stored(own.w[k : k + depth]), own.empty_dx())
        for k in range(0, 512, depth)
    ]
    assert dx.tobytes() == in_order(parts).tobytes()
    assert added.tobytes() == (before + in_order(parts)).tobytes()
    own.memory.check()


@pytest.mark.parametrize("inner, outputs", IN_PARTS)
def test_slices_of_the_batch_have_the_bits_of_the_whole(inner, outputs, rng):
    op = product(6, inner, outputs)
    own = Operands(op, rng)
    y, dx = own.forward(op, own.x, own.w, own.bias), own.dgrad(op, own.dy, own.w, own.empty_dx())
    for first, count in ((0, 2), (2, 4)):
        its = slice(first, first + count)
        part = replace(product(count, inner, outputs), batch_slice=BatchSlice(first, count, 6))
        assert whole_rows(part) == 6
        rows = own.stored(own.x[its])
        assert own.forward(part, rows, own.w, own.bias).tobytes() == y[its].tobytes()
        got = own.dgrad(part, own.stored(own.dy[its]), own.w, own.stored(np.full(rows.shape, np.nan)))
        assert got.tobytes() == dx[its].tobytes()


def test_a_slice_has_the_parts_of_the_whole_batch():
    whole, alone = product(4096, 4096, 4096), product(64, 4096, 4096)
    part = replace(alone, batch_slice=BatchSlice(64, 64, 4096))
    assert forward_parts(alone).number > 1 and dgrad_parts(alone).number > 1
    assert forward_parts(part) == forward_parts(whole) and dgrad_parts(part) == dgrad_parts(whole)


def test_bands_of_whole_parts_have_the_bits_of_the_whole(rng):
    op = product(5, 24, 512)
    own = Operands(op, rng)
    dx, y = own.dgrad(op, own.dy, own.w, own.empty_dx()), own.forward(op, own.x, own.w, own.bias)
    rules = CudaDevice().row_bands(op)
    assert rules is not None and rules.multiple == dgrad_parts(op).depth
    first, sums = 3 * rules.multiple, own.empty_dx()
    for rows in (slice(0, first), slice(first, 512)):
        outputs = rows.stop - rows.start
        band = replace(op, outputs=outputs, y=replace(op.y, shape=(5, outputs)), band=RowBand(rows.start, 512))
        w = own.stored(own.w[rows])
        assert own.forward(band, own.x, w, own.bias).tobytes() == y[:, rows].tobytes()
        own.dgrad(band, own.dy, w, sums, accumulates=("dx0",) if rows.start else ())
    assert sums.tobytes() == dx.tobytes()
    own.memory.check()


def test_the_workspace_holds_the_parts_of_the_rows_at_hand():
    op = product(64, 25088, 4096)
    forward, dgrad = (cuda_kernels.workspace_bytes(op, step, roles) for step, roles in ROLES.items())
    assert forward == 4 * forward_parts(op).number * 64 * 4096
    assert (dgrad_parts(op).number, dgrad) == (1, 0)
    part = replace(product(16, 25088, 4096), batch_slice=BatchSlice(16, 16, 64))
    assert cuda_kernels.workspace_bytes(part, "forward", ROLES["forward"]) == forward // 4


def test_products_in_parts_read_and_write_fp32_and_round_no_weights():
    op = product(64, 4096, 1000)
    for step, roles in ROLES.items():
        dtypes = {role: "float32" if role.startswith("w") else NARROW["bf16"] for role in roles}
        assert not narrow_products.takes("bf16", op, step, dtypes, ())
        assert narrow_products.rounding_bytes("bf16", op, step, "bf16") == 0


@pytest.mark.parametrize("rows", [1, 8, 64, 256])
def test_parts_divide_the_depth_into_runs_of_four(rows):
    for columns, depth in ((4096, 25088), (4096, 4096), (1000, 4096), (4096, 9216), (2048, 1000), (1000, 1024)):
        for step in (FPROP, DGRAD):
            count, each = parts_of(step, rows, columns, depth)
            assert count * each == depth and each % 4 == 0
            assert count == 1 or step == FPROP or each <= MAX_ROWS


def test_many_rows_have_tiles_enough_without_parts():
    assert parts_of(FPROP, 4096, 4096, 4096).number == parts_of(DGRAD, 4096, 4096, 4096).number == 1
