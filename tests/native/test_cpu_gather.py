"""Rows of a table on the cpu device, against NumPy."""

import numpy as np
import pytest

from layermem.backends.cpu.support.launch import launch
from tests.cases.shapes import TABLES
from tests.native.numbers import at, normal


def drawn(rows, count):
    return np.random.default_rng(rows).integers(0, rows, count).astype(np.float32)


@pytest.mark.parametrize("rows, width, count", TABLES)
def test_rows_are_gathered_with_and_without_a_bias(rows, width, count, isa, every_way):
    table, bias, index = normal(1, rows, width), normal(2, width), drawn(rows, count)

    def make(memory):
        T, B, chosen = memory.put(table), memory.put(bias), memory.put(index)
        plain, biased = memory.empty(count, width), memory.empty(count, width)
        how = {"count": count, "table": at(T), "index": at(chosen)}
        launch("gather_rows", rows=rows, width=width, out=at(plain), **how)()
        launch("gather_rows", rows=rows, width=width, out=at(biased), bias=at(B), **how)()
        return plain, biased

    plain, biased = every_way(make)
    np.testing.assert_array_equal(plain, table[index.astype(int)])
    np.testing.assert_array_equal(biased, table[index.astype(int)] + bias)


@pytest.mark.parametrize("rows, width, count", TABLES)
def test_a_row_is_the_sum_of_what_was_read_from_it_in_the_order_of_the_indices(rows, width, count, isa, every_way):
    x, index, before = normal(1, count, width), drawn(rows, count), normal(3, rows, width)
    expected, added = np.zeros((rows, width), np.float32), before.copy()
    for total in (expected, added):
        for i, row in enumerate(index.astype(int)):
            total[row] += x[i]

    def make(memory):
        X, chosen, out, into = memory.put(x), memory.put(index), memory.empty(rows, width), memory.put(before)
        how = {"count": count, "x": at(X), "index": at(chosen)}
        launch("scatter_rows", rows=rows, width=width, out=at(out), **how)()
        launch("scatter_rows", rows=rows, width=width, out=at(into), accumulate=True, **how)()
        return out, into

    out, into = every_way(make)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(into, added)


@pytest.mark.parametrize("bad", [5.0, -1.0, np.nan, np.inf, -1e30])
def test_an_index_out_of_range_is_an_error(bad, memory):
    table, index, out = memory.put(normal(1, 5, 4)), memory.put([1.0, bad, 2.0]), memory.empty(5, 4)
    for bound in (
        launch("gather_rows", rows=5, width=4, count=3, out=at(out), table=at(table), index=at(index)),
        launch("scatter_rows", rows=5, width=4, count=3, out=at(out), x=at(table), index=at(index)),
    ):
        with pytest.raises(ValueError, match="but it has 5 rows: 0 to 4"):
            bound()
