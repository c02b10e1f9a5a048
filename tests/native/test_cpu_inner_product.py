"""InnerProduct kernels of the cpu device against products in float64."""

import numpy as np
import pytest

from layermem.backends.cpu.support.launch import launch, query
from tests.cases.inner_product import COLUMN_SUMS, PRODUCTS
from tests.native.numbers import at, close, normal


@pytest.mark.parametrize("rows, columns", COLUMN_SUMS)
def test_column_sums_add_every_row(rows, columns, isa, every_way):
    values, before = normal(1, rows, columns), normal(2, columns)

    def make(memory):
        X, out, added = memory.put(values), memory.empty(columns), memory.put(before)
        workspace = memory.workspace(query("column_sums_workspace_bytes", rows, columns))
        launch("column_sums", rows, columns, out=at(out), x=at(X), workspace=workspace)()
        launch("column_sums", rows, columns, out=at(added), x=at(X), accumulate=True, workspace=workspace)()
        return out, added

    out, added = every_way(make)
    want = values.sum(axis=0, dtype=np.float64)
    close(out, want, 1e-5)
    close(added, want + before, 1e-5)


@pytest.mark.parametrize("m, n, k", PRODUCTS)
def test_inner_product_forward_and_backward_are_matrix_products(m, n, k, isa, every_way):
    x, w, bias, dy = normal(1, m, k), normal(2, n, k), normal(3, n), normal(4, m, n)

    def make(memory):
        X, W, B, DY = memory.put(x), memory.put(w), memory.put(bias), memory.put(dy)
        y, plain, dx, dw = memory.empty(m, n), memory.empty(m, n), memory.empty(m, k), memory.empty(n, k)
        dx2, dw2 = memory.put(x), memory.put(w)
        workspace = memory.workspace(query("inner_product_wgrad_workspace_bytes", m, n, k))
        launch("inner_product_fprop", m, n, k, y=at(y), x=at(X), w=at(W), bias=at(B))()
        launch("inner_product_fprop", m, n, k, y=at(plain), x=at(X), w=at(W))()
        fused, mask = memory.empty(m, n), memory.empty(-(-m * n // 8), dtype=np.uint8)
        launch("inner_product_fprop", m, n, k, y=at(fused), x=at(X), w=at(W), bias=at(B), relu=True, bits=at(mask))()
        assert (fused == np.maximum(y, 0)).all()
        assert (mask == np.packbits(y.reshape(-1) > 0, bitorder="little")).all()
        launch("inner_product_dgrad", m, n, k, dx=at(dx), dy=at(DY), w=at(W))()
        launch("inner_product_dgrad", m, n, k, dx=at(dx2), dy=at(DY), w=at(W), accumulate=True)()
        launch("inner_product_wgrad", m, n, k, dw=at(dw), x=at(X), dy=at(DY), workspace=workspace)()
        launch("inner_product_wgrad", m, n, k, dw=at(dw2), x=at(X), dy=at(DY), accumulate=True, workspace=workspace)()
        return y, plain, dx, dx2, dw, dw2

    y, plain, dx, dx2, dw, dw2 = every_way(make)
    x, w, dy = x.astype(np.float64), w.astype(np.float64), dy.astype(np.float64)
    close(plain, x @ w.T)
    close(y, x @ w.T + bias)
    close(dx, dy @ w)
    close(dx2, dy @ w + x)
    close(dw, dy.T @ x)
    close(dw2, dy.T @ x + w)


@pytest.mark.parametrize("rule", ["SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"])
@pytest.mark.parametrize("m, n, k", PRODUCTS)
def test_a_fused_update_is_wgrad_and_then_its_update_to_the_bit(m, n, k, rule, isa, every_way):
    x, dy, w, h0, h1 = normal(1, m, k), normal(2, m, n), normal(3, n, k), normal(4, n, k) ** 2, normal(5, n, k) ** 2
    two = rule in ("AdaDelta", "Adam")
    settings = {"decay": 0.01, "momentum": 0.9, "momentum2": 0.99, "delta": 1e-3}
    assert query("inner_product_wgrad_workspace_bytes", m, n, k) == 0

    def make(memory):
        X, DY, DW = memory.put(x), memory.put(dy), memory.empty(n, k)
        apart, joined = ([memory.put(a) for a in (w, h0, h1)] for _ in range(2))
        launch("inner_product_wgrad", m, n, k, dw=at(DW), x=at(X), dy=at(DY))()
        for (W, H0, H1), dw in ((apart, DW), (joined, None)):
            held = {"w": at(W), "h0": at(H0), "h1": at(H1) if two else 0, **settings}
            if dw is None:
                bound = launch("inner_product_backward_update", m, n, k, rule=rule, x=at(X), dy=at(DY), **held)
            else:
                bound = launch("update", n * k, rule=rule, dw=at(dw), **held)
            bound(0.1, 0.5)
        for a, b in zip(apart, joined):
            assert a.tobytes() == b.tobytes()
        assert (joined[0] != w).any()
        return joined

    every_way(make)


def test_few_rows_of_a_data_gradient_have_the_bits_of_many(isa, every_way):
    m, n, k = 40, 130, 300
    w, dy, before = normal(1, n, k), normal(2, m, n), normal(3, m, k)

    def make(memory):
        W, DY, whole, parts = memory.put(w), memory.put(dy), memory.put(before), memory.put(before)
        launch("inner_product_dgrad", m, n, k, dx=at(whole), dy=at(DY), w=at(W), accumulate=True)()
        begin = 0
        for rows in (1, 7, 12, 13, 7):
            each, of_dy = memory.put(before[begin : begin + rows]), memory.put(dy[begin : begin + rows])
            launch("inner_product_dgrad", rows, n, k, dx=at(each), dy=at(of_dy), w=at(W), accumulate=True)()
            parts[begin : begin + rows] = each
            begin += rows
        return whole, parts

    whole, parts = every_way(make)
    assert (whole == parts).all()


@pytest.mark.parametrize("first", [1, 12, 64, 95])
@pytest.mark.parametrize("m, n, k", [sizes for sizes in PRODUCTS if sizes[1] > 95])
def test_bands_of_the_rows_of_w_leave_the_bits_of_the_whole(m, n, k, first, isa, every_way):
    x, w, bias, dy = normal(1, m, k), normal(2, n, k), normal(3, n), normal(4, m, n)
    assert query("inner_product_wgrad_workspace_bytes", m, n, k) == 0

    def make(memory):
        X, W, B, DY = memory.put(x), memory.put(w), memory.put(bias), memory.put(dy)
        y, dx, dw, added = memory.empty(m, n), memory.empty(m, k), memory.empty(n, k), memory.put(x)
        launch("inner_product_fprop", m, n, k, y=at(y), x=at(X), w=at(W), bias=at(B))()
        launch("inner_product_dgrad", m, n, k, dx=at(dx), dy=at(DY), w=at(W))()
        launch("inner_product_dgrad", m, n, k, dx=at(added), dy=at(DY), w=at(W), accumulate=True)()
        launch("inner_product_wgrad", m, n, k, dw=at(dw), x=at(X), dy=at(DY))()
        sums, more = memory.empty(m, k), memory.put(x)
        for begin, end in ((0, first), (first, n)):
            rows, band, columns = end - begin, memory.put(w[begin:end]), at(DY) + 4 * begin
            piece, gradient = memory.empty(m, rows), memory.empty(rows, k)
            launch("inner_product_fprop", m, rows, k, y=at(piece), x=at(X), w=at(band), bias=at(B) + 4 * begin)()
            assert piece.tobytes() == y[:, begin:end].tobytes()
            held = {"dy": columns, "w": at(band), "dy_outputs": n}
            launch("inner_product_dgrad", m, rows, k, dx=at(sums), accumulate=begin > 0, **held)()
            launch("inner_product_dgrad", m, rows, k, dx=at(more), accumulate=True, **held)()
            launch("inner_product_band_wgrad", m, rows, k, dw=at(gradient), x=at(X), dy=columns, dy_outputs=n)()
            assert gradient.tobytes() == dw[begin:end].tobytes()
        assert sums.tobytes() == dx.tobytes() and more.tobytes() == added.tobytes()
        return y, dx, dw

    every_way(make)


def test_dy_has_a_column_for_each_row_of_w():
    with pytest.raises(ValueError, match="dy has fewer columns than w has rows"):
        launch("inner_product_dgrad", 1, 4, 4, dx=0, dy=0, w=0, dy_outputs=3)
