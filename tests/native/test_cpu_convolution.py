"""Convolution and InnerProduct kernels of the cpu device against sums written out in float64."""

from dataclasses import dataclass

import numpy as np
import pytest

from layermem._native import cpu
from tests.native.numbers import at, close, normal


@dataclass(frozen=True)
class Case:
    n: int
    c: int
    hw: tuple[int, int]
    k: int
    kernel: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    def geometry(self):
        return cpu.ConvProblem(
            n=self.n,
            c=self.c,
            h=self.hw[0],
            w=self.hw[1],
            k=self.k,
            kernel=self.kernel,
            stride=self.stride,
            pad=self.pad,
            dilation=self.dilation,
            groups=self.groups,
        )


CASES = {
    "one by one": Case(2, 36, (7, 13), 20, (1, 1)),
    "one by one, strided": Case(1, 72, (13, 7), 130, (1, 1), (2, 2)),
    "three by three": Case(2, 20, (13, 13), 72, pad=(1, 1)),
    "first layer": Case(2, 3, (23, 29), 36, (7, 7), (2, 2), (3, 3)),
    "first layer without pad": Case(1, 3, (27, 27), 20, (11, 11), (4, 4)),
    "one channel": Case(3, 1, (13, 13), 4, (5, 5)),
    "four channels, wide pad": Case(1, 4, (7, 7), 3, (3, 3), (1, 1), (3, 3)),
    "width one": Case(2, 36, (13, 1), 20, (3, 1), (1, 1), (1, 0)),
    "stride three": Case(2, 20, (13, 13), 36, (3, 3), (3, 2), (1, 2)),
    "stride beyond the kernel": Case(1, 4, (13, 13), 4, (2, 1), (3, 3)),
    "dilated": Case(2, 36, (13, 13), 20, (3, 3), (1, 1), (2, 2), (2, 2)),
    "dilated, few channels, strided": Case(1, 3, (17, 13), 20, (3, 2), (2, 3), (2, 1), (2, 3)),
    "two groups": Case(2, 72, (7, 13), 36, groups=2, pad=(1, 1)),
    "groups of one": Case(2, 36, (13, 7), 36, groups=36, pad=(1, 1), stride=(2, 1)),
    "groups of one, no stride": Case(2, 20, (9, 14), 20, groups=20, pad=(1, 1)),
    "groups of one, dilated": Case(1, 72, (13, 13), 72, (3, 2), (2, 1), (2, 1), (2, 2), groups=72),
    "groups of one, wide pad": Case(1, 5, (4, 4), 5, (2, 2), groups=5, pad=(2, 2)),
    "upsampling by groups of one": Case(1, 21, (33, 29), 21, (8, 8), (4, 4), (2, 2), groups=21),
    "more outputs than inputs in a group": Case(1, 4, (7, 7), 12, groups=4),
    "long reduction": Case(1, 500, (4, 3), 20, (1, 1)),
    "long reduction with taps": Case(1, 400, (5, 5), 36, (3, 3), pad=(1, 1)),
    "many pixels": Case(4, 4, (40, 40), 20, (3, 3), pad=(1, 1)),
    "three by three, many channels": Case(2, 36, (14, 14), 72, pad=(1, 1)),
    "three by three, odd sizes": Case(4, 72, (9, 7), 36, pad=(1, 1)),
    "three by three, no pad": Case(3, 40, (10, 13), 33),
    "three by three, wide pad": Case(3, 32, (7, 8), 50, pad=(2, 2)),
    "three by three, deep": Case(1, 400, (17, 16), 40, pad=(1, 1)),
    "three by three, blocks of tiles": Case(3, 36, (60, 60), 100, pad=(1, 1)),
    "three by three, wide groups": Case(3, 72, (14, 9), 80, pad=(1, 1), groups=2),
    "one pixel": Case(1, 36, (3, 3), 72),
}


def conv64(case, x, w):
    """y and the functions that send dy home, by one loop over taps.  x NHWC, w [K][kh][kw][C/g], float64."""
    (kh, kw), (sh, sw), (ph, pw), (dh, dw), g = case.kernel, case.stride, case.pad, case.dilation, case.groups
    n, h, wide, c = x.shape
    k = w.shape[0]
    ho, wo = (h + 2 * ph - dh * (kh - 1) - 1) // sh + 1, (wide + 2 * pw - dw * (kw - 1) - 1) // sw + 1
    xp = np.zeros((n, h + 2 * ph, wide + 2 * pw, c))
    xp[:, ph : ph + h, pw : pw + wide] = x
    wg = w.reshape(g, k // g, kh, kw, c // g)

    def view(r, s):
        return (slice(None), slice(r * dh, r * dh + sh * ho - sh + 1, sh), slice(s * dw, s * dw + sw * wo - sw + 1, sw))

    y = np.zeros((n, ho, wo, k))
    for r in range(kh):
        for s in range(kw):
            part = xp[view(r, s)].reshape(n, ho, wo, g, c // g)
            y += np.einsum("nhwgc,gkc->nhwgk", part, wg[:, :, r, s]).reshape(y.shape)

    def backward(dy):
        dxp, dwg, dyg = np.zeros_like(xp), np.zeros_like(wg), dy.reshape(n, ho, wo, g, k // g)
        for r in range(kh):
            for s in range(kw):
                part = xp[view(r, s)].reshape(n, ho, wo, g, c // g)
                dwg[:, :, r, s] = np.einsum("nhwgk,nhwgc->gkc", dyg, part)
                dxp[view(r, s)] += np.einsum("nhwgk,gkc->nhwgc", dyg, wg[:, :, r, s]).reshape(n, ho, wo, c)
        return dxp[:, ph : ph + h, pw : pw + wide], dwg.reshape(w.shape)

    return y, backward


def tensors(case):
    g = case.geometry()
    x = normal(1, case.n, *case.hw, case.c)
    w = normal(2, case.k, *case.kernel, case.c // case.groups)
    return g, x, w, normal(3, case.k), normal(4, case.n, g.ho, g.wo, case.k)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_convolution_forward_is_the_sum_over_taps(case, unit, every_way):
    g, x, w, bias, dy = tensors(case)

    def make(memory):
        X, W, B = memory.put(x), memory.put(w), memory.put(bias)
        y, plain, added = memory.empty(*dy.shape), memory.empty(*dy.shape), memory.put(dy)
        scratch = memory.scratch(cpu.conv_fprop_workspace(g))
        cpu.conv_fprop(g, y=at(y), x=at(X), w=at(W), bias=at(B), workspace=scratch)()
        cpu.conv_fprop(g, y=at(plain), x=at(X), w=at(W), workspace=scratch)()
        cpu.conv_fprop(g, y=at(added), x=at(X), w=at(W), accumulate=True, workspace=scratch)()
        return y, plain, added

    y, plain, added = every_way(make)
    want, _ = conv64(case, x.astype(np.float64), w.astype(np.float64))
    close(plain, want)
    close(y, want + bias)
    close(added, want + dy)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_rectified_convolution_is_the_convolution_and_its_relu(case, unit, every_way):
    g, x, w, bias, dy = tensors(case)

    def make(memory):
        X, W, B = memory.put(x), memory.put(w), memory.put(bias)
        y, fused = memory.empty(*dy.shape), memory.empty(*dy.shape)
        mask = memory.empty(-(-dy.size // 8), dtype=np.uint8)
        scratch = memory.scratch(cpu.conv_fprop_workspace(g))
        cpu.conv_fprop(g, y=at(y), x=at(X), w=at(W), bias=at(B), workspace=scratch)()
        cpu.conv_fprop(g, y=at(fused), x=at(X), w=at(W), bias=at(B), relu=True, mask=at(mask), workspace=scratch)()
        return y, fused, mask

    y, fused, mask = every_way(make)
    assert (fused == np.maximum(y, 0)).all()
    assert (mask == np.packbits(y.reshape(-1) > 0, bitorder="little")).all()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_convolution_backward_data_is_its_transpose(case, unit, every_way):
    g, x, w, _, dy = tensors(case)
    bias, before = normal(5, case.c), normal(6, *x.shape)

    def make(memory):
        DY, W, B = memory.put(dy), memory.put(w), memory.put(bias)
        dx, biased, added = memory.empty(*x.shape), memory.empty(*x.shape), memory.put(before)
        scratch = memory.scratch(cpu.conv_dgrad_workspace(g))
        cpu.conv_dgrad(g, dx=at(dx), dy=at(DY), w=at(W), workspace=scratch)()
        cpu.conv_dgrad(g, dx=at(biased), dy=at(DY), w=at(W), bias=at(B), workspace=scratch)()
        cpu.conv_dgrad(g, dx=at(added), dy=at(DY), w=at(W), accumulate=True, workspace=scratch)()
        return dx, biased, added

    dx, biased, added = every_way(make)
    _, backward = conv64(case, x.astype(np.float64), w.astype(np.float64))
    want, _ = backward(dy.astype(np.float64))
    close(dx, want)
    close(biased, want + bias)
    close(added, want + before)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_convolution_backward_weights_sums_over_pixels(case, unit, every_way):
    g, x, w, _, dy = tensors(case)
    before = normal(6, *w.shape)

    def make(memory):
        X, DY, dw, added = memory.put(x), memory.put(dy), memory.empty(*w.shape), memory.put(before)
        scratch = memory.scratch(cpu.conv_wgrad_workspace(g))
        cpu.conv_wgrad(g, dw=at(dw), x=at(X), dy=at(DY), workspace=scratch)()
        cpu.conv_wgrad(g, dw=at(added), x=at(X), dy=at(DY), accumulate=True, workspace=scratch)()
        return dw, added

    dw, added = every_way(make)
    _, backward = conv64(case, x.astype(np.float64), w.astype(np.float64))
    _, want = backward(dy.astype(np.float64))
    close(dw, want, 1e-5)
    close(added, want + before, 1e-5)


@pytest.mark.parametrize("rows, columns", [(1, 3), (7, 20), (5000, 36), (70000, 3)])
def test_column_sums_add_every_row(rows, columns, unit, every_way):
    values, before = normal(1, rows, columns), normal(2, columns)

    def make(memory):
        X, out, added = memory.put(values), memory.empty(columns), memory.put(before)
        scratch = memory.scratch(cpu.column_sums_workspace(rows, columns))
        cpu.column_sums(rows, columns, out=at(out), x=at(X), workspace=scratch)()
        cpu.column_sums(rows, columns, out=at(added), x=at(X), accumulate=True, workspace=scratch)()
        return out, added

    out, added = every_way(make)
    want = values.sum(axis=0, dtype=np.float64)
    close(out, want, 1e-5)
    close(added, want + before, 1e-5)


PRODUCTS = [(1, 10, 36), (1, 1, 1), (8, 36, 2500), (7, 100, 13), (64, 10, 500), (100, 130, 300), (13, 257, 4097)]


@pytest.mark.parametrize("m, n, k", PRODUCTS)
def test_inner_product_forward_and_backward_are_matrix_products(m, n, k, unit, every_way):
    x, w, bias, dy = normal(1, m, k), normal(2, n, k), normal(3, n), normal(4, m, n)

    def make(memory):
        X, W, B, DY = memory.put(x), memory.put(w), memory.put(bias), memory.put(dy)
        y, plain, dx, dw = memory.empty(m, n), memory.empty(m, n), memory.empty(m, k), memory.empty(n, k)
        dx2, dw2 = memory.put(x), memory.put(w)
        scratch = memory.scratch(cpu.inner_product_wgrad_workspace(m, n, k))
        cpu.inner_product_fprop(m, n, k, y=at(y), x=at(X), w=at(W), bias=at(B))()
        cpu.inner_product_fprop(m, n, k, y=at(plain), x=at(X), w=at(W))()
        rectified, mask = memory.empty(m, n), memory.empty(-(-m * n // 8), dtype=np.uint8)
        cpu.inner_product_fprop(m, n, k, y=at(rectified), x=at(X), w=at(W), bias=at(B), relu=True, mask=at(mask))()
        assert (rectified == np.maximum(y, 0)).all()
        assert (mask == np.packbits(y.reshape(-1) > 0, bitorder="little")).all()
        cpu.inner_product_dgrad(m, n, k, dx=at(dx), dy=at(DY), w=at(W))()
        cpu.inner_product_dgrad(m, n, k, dx=at(dx2), dy=at(DY), w=at(W), accumulate=True)()
        cpu.inner_product_wgrad(m, n, k, dw=at(dw), x=at(X), dy=at(DY), workspace=scratch)()
        cpu.inner_product_wgrad(m, n, k, dw=at(dw2), x=at(X), dy=at(DY), accumulate=True, workspace=scratch)()
        return y, plain, dx, dx2, dw, dw2

    y, plain, dx, dx2, dw, dw2 = every_way(make)
    x, w, dy = x.astype(np.float64), w.astype(np.float64), dy.astype(np.float64)
    close(plain, x @ w.T)
    close(y, x @ w.T + bias)
    close(dx, dy @ w)
    close(dx2, dy @ w + x)
    close(dw, dy.T @ x)
    close(dw2, dy.T @ x + w)


LEARNING = [(1, 1, 1), (8, 36, 2500), (7, 100, 13), (64, 30, 1030), (200, 25, 1100)]


@pytest.mark.parametrize("rule", ["SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"])
@pytest.mark.parametrize("m, n, k", LEARNING)
def test_learning_is_the_weight_gradient_and_then_its_update_to_the_bit(m, n, k, rule, unit, every_way):
    x, dy, w, h0, h1 = normal(1, m, k), normal(2, m, n), normal(3, n, k), normal(4, n, k) ** 2, normal(5, n, k) ** 2
    two = rule in ("AdaDelta", "Adam")
    settings = {"decay": 0.01, "momentum": 0.9, "momentum2": 0.99, "delta": 1e-3}
    assert cpu.inner_product_wgrad_workspace(m, n, k) == 0

    def make(memory):
        X, DY, DW = memory.put(x), memory.put(dy), memory.empty(n, k)
        apart, joined = ([memory.put(a) for a in (w, h0, h1)] for _ in range(2))
        cpu.inner_product_wgrad(m, n, k, dw=at(DW), x=at(X), dy=at(DY))()
        for (W, H0, H1), dw in ((apart, DW), (joined, None)):
            held = {"w": at(W), "h0": at(H0), "h1": at(H1) if two else 0, **settings}
            if dw is None:
                launch = cpu.inner_product_backward_update(rule, m, n, k, x=at(X), dy=at(DY), **held)
            else:
                launch = cpu.update(rule, n * k, dw=at(dw), **held)
            launch(0.1, 0.5)
        for a, b in zip(apart, joined):
            assert a.tobytes() == b.tobytes()
        assert (joined[0] != w).any()
        return joined

    every_way(make)


def test_a_geometry_that_cannot_be_is_refused_with_a_sentence():
    with pytest.raises(ValueError, match="divisible by groups"):
        cpu.ConvProblem(n=1, c=3, h=5, w=5, k=4, kernel=(3, 3), groups=2)
    with pytest.raises(ValueError, match="larger than the padded image"):
        cpu.ConvProblem(n=1, c=3, h=5, w=5, k=4, kernel=(7, 7))
    with pytest.raises(ValueError, match="unknown ISA 'mmx'"):
        cpu.set_isa("mmx")
