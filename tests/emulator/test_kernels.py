"""The demonstration kernels give the right numbers in every way of running them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator import emulate
from tests.emulator.emulate import WAYS, load, pack

KERNELS = "tests/emulator/kernels"


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    assert not np.isnan(got).any()
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def normal(rng, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


def fresh(*shape: int) -> np.ndarray:
    return np.full(shape, np.nan, np.float32)


def bfloat16(x: np.ndarray) -> np.ndarray:
    """x as the 16 bits of bfloat16, rounded to nearest even."""
    bits = x.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_a_tiled_product_in_shared_memory_is_the_product(way, rng):
    mode, order, copies = way
    m, n, k = 45, 37, 50
    a, b, c = normal(rng, m, k), normal(rng, k, n), fresh(m, n)
    kernels = load(f"{KERNELS}/sgemm.cu", mode, order=order, copies=copies)
    kernels.launch("sgemm", (3, 3), (16, 16), pack("PPPiii", c, a, b, m, n, k))
    assert relative_error(c, a.astype(np.float64) @ b) < 1e-6


@pytest.mark.parametrize("precision, bound", [("tf32", 5e-4), ("bf16", 4e-3)])
@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_a_pipelined_product_on_tensor_cores_is_the_product(way, precision, bound, rng):
    mode, order, copies = way
    m, n, k = 75, 130, 136
    a, b, c = normal(rng, m, k), normal(rng, n, k), fresh(m, n)
    operands = (a, b) if precision == "tf32" else (bfloat16(a), bfloat16(b))
    kernels = load(f"{KERNELS}/gemm_mma.cu", mode, order=order, copies=copies)
    kernels.launch(f"gemm_{precision}", (3, 2), 128, pack("PPPiii", c, *operands, m, n, k), 3 * 16384)
    error = relative_error(c, a.astype(np.float64) @ b.T)
    assert bound / 4 < error < bound  # far below the bound it would not be this precision


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_sums_by_warps_and_blocks_are_the_sums(way, rng):
    mode, order, copies = way
    x, sums = normal(rng, 5000), fresh(5)
    kernels = load(f"{KERNELS}/reduce.cu", mode, order=order, copies=copies)
    kernels.launch("block_sums", 5, 256, pack("PPii", sums, x, x.size, 1024))
    want = [x[i : i + 1024].sum(dtype=np.float64) for i in range(0, 5000, 1024)]
    assert relative_error(sums, np.array(want)) < 1e-6


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_the_largest_of_each_row_is_exact(way, rng):
    mode, order, copies = way
    x, largest = normal(rng, 7, 333), fresh(7)
    kernels = load(f"{KERNELS}/reduce.cu", mode, order=order, copies=copies)
    kernels.launch("row_max", 7, 128, pack("PPii", largest, x, 333, 0), 128 * 4)
    assert np.array_equal(largest, x.max(axis=1))


def test_no_order_of_threads_changes_a_bit(rng):
    a, b = normal(rng, 64, 96), normal(rng, 64, 96)
    seen = set()
    for order in emulate.ORDERS:
        for copies in emulate.COPIES:
            c = fresh(64, 64)
            kernels = load(f"{KERNELS}/gemm_mma.cu", order=order, copies=copies, seed=3)
            kernels.launch("gemm_tf32", 1, 128, pack("PPPiii", c, a, b, 64, 64, 96), 3 * 16384)
            seen.add(c.tobytes())
    assert len(seen) == 1
