"""Sums per channel: their parts, which the shape alone decides, and the splits of a weight gradient in their order."""

from __future__ import annotations

import numpy as np
import pytest

from layermem.backends.cuda.products import wgrad
from layermem.backends.cuda.support.channel_sums import (
    BLOCKS,
    MIN_ROWS,
    Columns,
    channel_sums,
    merge_lanes,
    merge_parts,
)
from layermem.backends.cuda.support.launch import THREADS, Launch
from layermem.ops import ConvProblem, Window
from tests.backends.cuda.harness import Memory
from tests.cases.inner_product import WIDE_SUMS
from tests.emulator import emulate
from tests.emulator.emulate import WAYS


@pytest.mark.parametrize("rows, columns", WIDE_SUMS)
def test_a_sum_over_many_rows_has_blocks_for_eight_on_each_multiprocessor(rows, columns):
    at = Columns(rows, columns)
    assert BLOCKS <= at.across * at.parts < 1.1 * BLOCKS
    assert at.rows_each >= MIN_ROWS * THREADS // at.lanes


def test_a_sum_over_few_rows_is_one_part():
    assert Columns(40, 64).parts == 1 and Columns(0, 64).parts == 1


@pytest.mark.parametrize("parts, lanes", [(1, 32), (64, 32), (65, 16), (528, 2), (1056, 1), (5000, 1)])
def test_parts_are_shared_out_among_the_threads_of_a_block(parts, lanes):
    assert merge_lanes(parts) == lanes
    assert parts > THREADS * MIN_ROWS or parts <= MIN_ROWS * THREADS // lanes


@pytest.mark.parametrize("frames", [1, 16])
@pytest.mark.parametrize("columns", [64, 3])
def test_a_sum_takes_two_launches_at_most(columns, frames):
    """Also over frames, which share the blocks of a sum."""
    at = Columns(128 * 112 * 112, columns, frames=frames)
    launches = list(channel_sums(at, 0, 0, False, 0))
    assert [each.function for each in launches] == [f"channel_sums_v{at.v}"] * 2
    assert launches[0].grid == (at.across, at.parts, frames) and BLOCKS <= np.prod(launches[0].grid) < 1.1 * BLOCKS
    assert launches[1] == merge_parts(frames * at.parts, columns, 0, 0, False)


def run(launch: Launch, way: tuple[str, str, str]) -> None:
    mode, order, copies = way
    kernels = emulate.load(f"cuda/{launch.module}.cu", mode, order=order, copies=copies)
    kernels.launch(launch.function, launch.grid, launch.block, launch.args, launch.shared, buffers=BUFFERS)


BUFFERS: list[np.ndarray] = []


@pytest.fixture
def memory():
    BUFFERS.clear()
    yield Memory()
    BUFFERS.clear()


def placed(memory: Memory, values: np.ndarray) -> np.ndarray:
    array = memory.stored(values, np.float32)
    BUFFERS.append(array)
    return array


@pytest.mark.parametrize("way", WAYS, ids="-".join)
@pytest.mark.parametrize("columns", [8, 5])
@pytest.mark.parametrize("parts", [1, 7, 300, 1056])
def test_merged_parts_are_their_sums(parts, columns, way, memory, rng):
    x, y = placed(memory, rng.standard_normal((parts, columns))), placed(memory, rng.standard_normal(columns))
    before = y.astype(np.float64)
    run(merge_parts(parts, columns, y.ctypes.data, x.ctypes.data, True), way)
    memory.check()
    np.testing.assert_allclose(y, before + x.sum(axis=0, dtype=np.float64), rtol=1e-5, atol=1e-5)


def in_order(parts: np.ndarray, before: np.ndarray | None) -> np.ndarray:
    total = parts[0].copy() if before is None else before + parts[0]
    for part in parts[1:]:
        total = total + part
    return total


@pytest.mark.parametrize("way", WAYS, ids="-".join)
@pytest.mark.parametrize("outputs", [8, 3])  # four elements at once, and one
@pytest.mark.parametrize("splits", [1, 2, 5, 64, 300])
def test_splits_are_added_in_their_order_bit_for_bit(splits, outputs, way, memory, rng):
    problem = ConvProblem(2, 5, outputs, Window(1, 1), Window(1, 1))
    size = problem.filter.count
    parts = placed(memory, rng.standard_normal((splits + 1, size)))
    parts[0, 0] = parts[1, 0] = -0.0  # a sum that begins with 0 would lose the sign
    dw, open_out = placed(memory, rng.standard_normal(size)), placed(memory, np.full(size, np.nan))
    before, first = dw.copy(), in_order(parts[:splits], None)
    addresses = dw.ctypes.data, parts.ctypes.data, splits
    run(wgrad.sum_parts(problem, *addresses, False, open_out=open_out.ctypes.data), way)
    assert dw.tobytes() == first.tobytes() and open_out.tobytes() == parts[splits].tobytes()
    run(wgrad.sum_parts(problem, *addresses, False, sum_before=dw.ctypes.data), way)
    second = in_order(parts[:splits], first)
    assert dw.tobytes() == second.tobytes()
    dw[...] = before
    run(wgrad.sum_parts(problem, *addresses, True), way)
    assert dw.tobytes() == (before + first).tobytes()
    memory.check()


@pytest.mark.parametrize("aligned", [True, False])
def test_splits_move_16_bytes_at_a_time_where_all_arrays_are_aligned(aligned):
    problem = ConvProblem(2, 4, 4, Window(1, 1), Window(1, 1))
    launch = wgrad.sum_parts(problem, 256, 512 if aligned else 516, 3, False)
    assert launch.function == ("sum_splits_v4" if aligned else "sum_splits_v1")
