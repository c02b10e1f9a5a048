"""Barriers and products of cuda/warpgroup.cuh behave on the host as the PTX manual specifies, in every mode."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.build import MODES
from tests.emulator.emulate import WAYS, EmulationError, Kernels, load, pack

SOURCE = "tests/emulator/kernels/warpgroup.cu"
SHARED = 64 * 128 + 1024


@pytest.fixture(params=MODES)
def kernels(request) -> Kernels:
    return load(SOURCE, request.param)


def by_threads(values: np.ndarray) -> np.ndarray:
    """[64, columns] in the layout of the 128 threads of a warpgroup: [128, columns / 8, 4]."""
    found = np.zeros((128, values.shape[1] // 8, 4), np.float32)
    for thread in range(128):
        warp, (g, t) = thread // 32, divmod(thread % 32, 4)
        row = 16 * warp + g
        for block in range(values.shape[1] // 8):
            column = 8 * block + 2 * t
            found[thread, block] = *values[row, column : column + 2], *values[row + 8, column : column + 2]
    return found


def fragments(a: np.ndarray) -> np.ndarray:
    """[64, 8] words of k in the layout of threads: (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4)."""
    found = np.zeros((128, 4), np.uint32)
    for thread in range(128):
        warp, (g, t) = thread // 32, divmod(thread % 32, 4)
        row = 16 * warp + g
        found[thread] = a[row, t], a[row + 8, t], a[row, t + 4], a[row + 8, t + 4]
    return found


def swizzled(rows: np.ndarray) -> np.ndarray:
    """Rows of 128 or 64 bytes in the order of shared memory: bits 4 and up of an address by those from 7 on."""
    flat, row_bytes = rows.reshape(-1).view(np.uint8), rows[0].nbytes
    address = np.arange(flat.size)
    mask = 7 if row_bytes == 128 else 3
    found = np.zeros_like(flat)
    found[address ^ ((address >> 7 & mask) << 4)] = flat
    return found.view(np.uint32)


def test_a_tf32_product_reads_the_rows_that_its_descriptor_names(kernels, rng):
    a, b, d = (rng.standard_normal(shape, dtype=np.float32) for shape in ((64, 8), (64, 32), (64, 64)))
    a, b = (np.asarray(m.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for m in (a, b))
    got = by_threads(d)
    args = pack("PPP", got, fragments(a.view(np.uint32)), swizzled(b))
    kernels.launch("product_tf32", 1, 128, args, SHARED)
    want = by_threads(d + a.astype(np.float64) @ b[:, 24:].T)  # the fourth eight of 32
    np.testing.assert_allclose(got, want, rtol=0, atol=4e-6)


def test_a_bf16_product_reads_the_rows_that_its_descriptor_names(kernels, rng):
    a, b, d = (rng.standard_normal(shape, dtype=np.float32) for shape in ((64, 16), (128, 32), (64, 128)))
    a_bits, b_bits = ((m.view(np.uint32) >> 16).astype(np.uint16) for m in (a, b))
    a, b = ((bits.astype(np.uint32) << 16).view(np.float32) for bits in (a_bits, b_bits))
    got = by_threads(d)
    args = pack("PPP", got, fragments(a_bits.view(np.uint32)), swizzled(b_bits))
    kernels.launch("product_bf16", 1, 128, args, SHARED)
    want = by_threads(d + a.astype(np.float64) @ b[:, 16:].T)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


def panels(columns: np.ndarray) -> np.ndarray:
    """[columns, k] in panels of 64 columns, whose rows are along these: [columns / 64, k, 64]."""
    return np.ascontiguousarray(columns.T.reshape(columns.shape[1], -1, 64).transpose(1, 0, 2))


@pytest.mark.parametrize(
    "kernel, n", [("product_of_rows", 128), ("product_of_columns_of_b", 128), ("product_of_columns", 192)]
)
def test_a_product_reads_both_operands_from_shared_memory(kernel, n, kernels, rng):
    a, b, d = (rng.standard_normal(shape, dtype=np.float32) for shape in ((64, 64), (n, 64), (64, n)))
    a_bits, b_bits = ((m.view(np.uint32) >> 16).astype(np.uint16) for m in (a, b))
    a, b = ((bits.astype(np.uint32) << 16).view(np.float32) for bits in (a_bits, b_bits))
    if kernel != "product_of_rows":
        b_bits = panels(b_bits).reshape(n, 64)
    if kernel == "product_of_columns":
        a_bits = panels(a_bits).reshape(64, 64)
    for number in (0, 3):
        got, k = by_threads(d), slice(16 * number, 16 * number + 16)
        args = pack("PPPi", got, swizzled(a_bits), swizzled(b_bits), number)
        kernels.launch(kernel, 1, 128, args, (64 + n) * 128 + 1024)
        want = by_threads(d + a[:, k].astype(np.float64) @ b[:, k].T)
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


def test_a_phase_ends_with_its_arrivals(kernels):
    y = np.full(50, -1, np.int32)
    kernels.launch("phases", 1, 64, pack("Pi", y, y.size))
    assert y.tolist() == list(range(50))


BUGS = (
    "none",
    "no wait",
    "not expected",
    "fewer",
    "more",
    "odd bytes",
    "odd place",
    "odd source",
    "no barrier",
    "barrier unfenced",
    "bytes unfenced",
    "left in flight",
)  # as in the source
WRONG = [  # (seeded error, build that detects it, copies, report)
    ("no wait", "race", "late", "race: read at .* while the asynchronous copy issued at .* is in flight"),
    ("no wait", "race", "early", "race: write at .* and read at"),
    ("not expected", "plain", "early", "256 bytes land, and the phase of their barrier expects 0"),
    ("fewer", "plain", "early", "256 bytes land, and the phase of their barrier expects 240"),
    ("more", "plain", "late", "no thread can go on; .* A barrier lacks 16 bytes"),
    ("odd bytes", "plain", "late", "248 bytes are no multiple of 16"),
    ("odd place", "plain", "late", "the destination of .* is not 256 bytes of shared memory, aligned to 16"),
    ("odd source", "plain", "late", "the source of .* is not aligned to 16"),
    ("no barrier", "plain", "late", "names a barrier that barrier_init has not made"),
    ("barrier unfenced", "race", "late", "race: bulk copy at .* the barrier made at .* without a proxy_fence"),
    (
        "bytes unfenced",
        "race",
        "late",
        "race: bulk copy at .* overwrites the bytes of a read at .* without a proxy_fence",
    ),
    ("left in flight", "plain", "late", "the block ends before 256 bytes have landed"),
]


def bulk_copies(mode: str, order: str, copies: str, bug: str = "none") -> np.ndarray:
    x, y = np.arange(5 * 64, dtype=np.int32), np.full(5 * 64, -1, np.int32)
    load(SOURCE, mode, order=order, copies=copies).launch("rounds", 1, 64, pack("PPii", y, x, x.size, BUGS.index(bug)))
    return y


@pytest.mark.parametrize("mode, order, copies", WAYS)
def test_a_bulk_copy_is_there_when_the_phase_has_ended(mode, order, copies):
    assert bulk_copies(mode, order, copies).tolist() == list(range(5 * 64))


@pytest.mark.parametrize("bug, mode, copies, said", WRONG, ids=lambda value: value if len(value) < 20 else "")
def test_a_bulk_copy_that_is_wrong_is_caught(bug, mode, copies, said):
    with pytest.raises(EmulationError, match=said):
        bulk_copies(mode, "forward", copies, bug)


def test_a_bulk_copy_beyond_memory_is_caught():
    x, y = np.arange(2 * 64 - 4, dtype=np.int32), np.full(2 * 64, -1, np.int32)
    with pytest.raises(EmulationError, match="heap-buffer-overflow"):
        load(SOURCE, "asan").launch("rounds", 1, 64, pack("PPii", y, x, y.size, 0))


def test_a_product_takes_a_whole_warpgroup():
    y = np.zeros(4096, np.float32)
    with pytest.raises(EmulationError, match="128 threads of a warpgroup"):
        args = pack("PPP", y, y.view(np.uint32)[:512], y.view(np.uint32)[:2048])
        load(SOURCE).launch("product_tf32", 1, 64, args, SHARED)
