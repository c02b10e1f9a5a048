"""Copies of the cpu device: rows, blocks and transposes."""

import numpy as np
import pytest

from layermem.backends.cpu.support.launch import launch
from tests.cases.shapes import COPIED_BYTES, COPIED_ROWS, TRANSPOSED
from tests.native.numbers import at, normal


@pytest.mark.parametrize("rows, width", COPIED_ROWS)
def test_copied_rows_keep_clear_of_their_neighbours(rows, width, isa, every_way):
    x, frame = normal(1, rows, width + 5), normal(2, rows, width + 9)

    def make(memory):
        X, out, added = memory.put(x), memory.put(frame), memory.put(frame)
        how = {"out_pitch": width + 9, "x": at(X) + 8, "x_pitch": width + 5}
        launch("copy_rows", rows, width, out=at(out) + 16, **how)()
        launch("copy_rows", rows, width, out=at(added) + 16, accumulate=True, **how)()
        return out, added

    out, added = every_way(make)
    want, sums = frame.copy(), frame.copy()
    want[:, 4 : 4 + width] = x[:, 2 : 2 + width]
    sums[:, 4 : 4 + width] += x[:, 2 : 2 + width]
    assert (out == want).all() and (added == sums).all()


@pytest.mark.parametrize("rows, width", [*COPIED_ROWS, *COPIED_BYTES])
def test_copied_bytes_keep_clear_of_their_neighbours(rows, width, every_way):
    rng = np.random.default_rng(rows)
    x, frame = (rng.integers(0, 256, (rows, width + more), np.uint8) for more in (6, 10))

    def make(memory):
        X, out = x.copy(), frame.copy()
        launch("copy_bytes", rows, width, out=at(out) + 4, out_pitch=width + 10, x=at(X) + 2, x_pitch=width + 6)()
        return (out,)

    (out,) = every_way(make)
    want = frame.copy()
    want[:, 4 : 4 + width] = x[:, 2 : 2 + width]
    assert (out == want).all()


@pytest.mark.parametrize("n, rows, columns", TRANSPOSED)
def test_transpose_turns_each_image_over(n, rows, columns, isa, every_way):
    x, before = normal(1, n, rows, columns), normal(2, n, columns, rows)

    def make(memory):
        X, out, added = memory.put(x), memory.empty(n, columns, rows), memory.put(before)
        launch("transpose", n, rows, columns, out=at(out), x=at(X))()
        launch("transpose", n, rows, columns, out=at(added), x=at(X), accumulate=True)()
        return out, added

    out, added = every_way(make)
    assert (out == x.transpose(0, 2, 1)).all() and (added == before + out).all()


def test_a_block_is_copied_between_any_strides(isa, every_way):
    x, frame = normal(1, 4, 9, 7, 5), normal(2, 7, 9, 5, 3)

    def make(memory):
        X, out, cropped = memory.put(x), memory.put(frame), memory.empty(2, 3, 4, 5)
        strides = [s // 4 for s in X.strides]
        launch(
            "copy_block",
            [3, 9, 7, 5],
            out=at(out),
            out_strides=[1, 15, 135, 3],
            x=at(X),
            x_strides=strides,
            accumulate=True,
        )()
        corner = at(X) + X[1, 2, 3].ctypes.data - at(X)
        launch("copy_block", [2, 3, 4, 5], out=at(cropped), out_strides=[60, 20, 5, 1], x=corner, x_strides=strides)()
        return out, cropped

    out, cropped = every_way(make)
    assert (out == frame + x[:3].transpose(2, 1, 3, 0)).all()
    assert (cropped == x[1:3, 2:5, 3:7]).all()


def test_a_block_whose_sides_run_along_other_axes_is_transposed_in_tiles(isa, every_way):
    x, before = normal(1, 3, 37, 2, 41), normal(2, 2, 3, 41, 37)

    def make(memory):
        X, out, added = memory.put(x), memory.empty(2, 3, 41, 37), memory.put(before)
        sizes, x_strides, strides = [2, 3, 41, 37], [41, 3034, 1, 82], [4551, 1517, 37, 1]
        launch("copy_block", sizes, out=at(out), out_strides=strides, x=at(X), x_strides=x_strides)()
        launch("copy_block", sizes, out=at(added), out_strides=strides, x=at(X), x_strides=x_strides, accumulate=True)()
        return out, added

    out, added = every_way(make)
    assert (out == x.transpose(2, 0, 3, 1)).all() and (added == before + x.transpose(2, 0, 3, 1)).all()
