"""Softmax, losses, LRN, Interp and copies of the cpu device against formulas in float64."""

import numpy as np
import pytest

from layermem._native import cpu
from tests.native.numbers import at, close, normal

AXES = [(5, 10, 1), (70, 1000, 1), (3, 7, 13), (1, 2, 40), (2, 1, 5), (300, 3, 1)]


def softmax64(x, axis=1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@pytest.mark.parametrize("shape", AXES)
def test_softmax_and_its_backward(shape, unit, every_way):
    s, x, dy, before = cpu.Axis(*shape), normal(1, *shape) * 5, normal(2, *shape), normal(3, *shape)

    def make(memory):
        X, DY, y, own = memory.put(x), memory.put(dy), memory.empty(*shape), memory.put(x)
        dx, over, added = memory.empty(*shape), memory.put(dy), memory.put(before)
        cpu.softmax_forward(s, y=at(y), x=at(X))()
        cpu.softmax_forward(s, y=at(own), x=at(own))()
        cpu.softmax_backward(s, dx=at(dx), y=at(y), dy=at(DY))()
        cpu.softmax_backward(s, dx=at(over), y=at(y), dy=at(over))()
        cpu.softmax_backward(s, dx=at(added), y=at(y), dy=at(DY), accumulate=True)()
        return y, own, dx, over, added

    y, own, dx, over, added = every_way(make)
    p = softmax64(x.astype(np.float64))
    assert np.abs(y - p).max() < 1e-6
    assert np.abs(dx - p * (dy - (p * dy).sum(axis=1, keepdims=True))).max() < 3e-6
    assert (own == y).all() and (over == dx).all() and (added == before + dx).all()


@pytest.mark.parametrize("ignore", [None, 1])
@pytest.mark.parametrize("divisor", [0, 6.0])
@pytest.mark.parametrize("shape", AXES)
def test_softmax_loss_is_the_mean_of_minus_log_of_the_labels_share(shape, divisor, ignore, unit, every_way):
    s, (outer, classes, inner) = cpu.Axis(*shape), shape
    x, before, dloss = normal(1, *shape) * 5, normal(2, *shape), np.float32([0.5])
    x[0] *= 40  # shares that round to nothing
    label = np.random.default_rng(3).integers(0, classes, (outer, inner)).astype(np.float32)
    how = {"ignore_label": ignore, "divisor": divisor}

    def make(memory):
        X, L, D = memory.put(x), memory.put(label), memory.put(dloss)
        loss, alone, y, own = memory.empty(1), memory.empty(1), memory.empty(*shape), memory.put(x)
        dx, over, added = memory.empty(*shape), memory.put(x), memory.put(before)
        scratch = memory.scratch(cpu.softmax_loss_workspace(s))
        cpu.softmax_loss_forward(s, loss=at(loss), y=at(y), x=at(X), label=at(L), workspace=scratch, **how)()
        cpu.softmax_loss_forward(s, loss=at(alone), x=at(X), label=at(L), workspace=scratch, **how)()
        cpu.softmax_loss_forward(s, loss=at(alone), y=at(own), x=at(own), label=at(L), workspace=scratch, **how)()
        for out, xs, add in ((dx, X, False), (over, over, False), (added, X, True)):
            cpu.softmax_loss_backward(
                s, dx=at(out), x=at(xs), label=at(L), dloss=at(D), accumulate=add, workspace=scratch, **how
            )()
        return loss, alone, y, own, dx, over, added

    loss, alone, y, own, dx, over, added = every_way(make)
    x = x.astype(np.float64)
    hot = label[:, None] == np.arange(classes)[None, :, None]
    valid = np.ones_like(label) if ignore is None else label != ignore
    shifted = x - x.max(axis=1, keepdims=True)
    each = np.log(np.exp(shifted).sum(axis=1)) - (shifted * hot).sum(axis=1)
    by = divisor or max(valid.sum(), 1)
    want = (each * valid).sum() / by
    assert abs(loss[0] - want) <= 2e-6 * max(abs(want), 1) and alone == loss
    assert np.abs(y - softmax64(x)).max() < 1e-6
    gradient = 0.5 / by * (softmax64(x) - hot) * valid[:, None]
    assert np.abs(dx - gradient).max() <= 1e-6 * 0.5 / by
    assert (own == y).all() and (over == dx).all() and np.allclose(added, before + dx, atol=1e-6)


def test_a_label_that_is_no_class_is_reported(memory):
    x, label, loss = memory.put(normal(1, 3, 4)), memory.put(np.float32([0, 4, 1])), memory.empty(1)
    s = cpu.Axis(3, 4)
    scratch = memory.scratch(cpu.softmax_loss_workspace(s))
    with pytest.raises(ValueError, match=r"label 4 is out of range 0\.\.3"):
        cpu.softmax_loss_forward(s, loss=at(loss), x=at(x), label=at(label), workspace=scratch)()


@pytest.mark.parametrize("ignore", [None, -1])
@pytest.mark.parametrize("count", [1, 77, 30011])
def test_sigmoid_loss_holds_for_any_score(count, ignore, unit, every_way):
    x, dloss = normal(1, count) * 20, np.float32([2.0])
    t = np.random.default_rng(2).choice(np.float32([0, 1, 0.25, -1]), count)
    how = {"ignore_label": ignore, "divisor": 0}

    def make(memory):
        X, T, D = memory.put(x), memory.put(t), memory.put(dloss)
        loss, dx, over = memory.empty(1), memory.empty(count), memory.put(x)
        scratch = memory.scratch(cpu.sigmoid_loss_workspace(count))
        cpu.sigmoid_loss_forward(count, loss=at(loss), x=at(X), target=at(T), workspace=scratch, **how)()
        for out, xs in ((dx, X), (over, over)):
            cpu.sigmoid_loss_backward(
                count, dx=at(out), x=at(xs), target=at(T), dloss=at(D), workspace=scratch, **how
            )()
        return loss, dx, over

    loss, dx, over = every_way(make)
    valid = np.ones(count, bool) if ignore is None else t != -1
    x, by = x.astype(np.float64), max(valid.sum(), 1)
    want = ((np.logaddexp(0, x) - x * t) * valid).sum() / by
    assert abs(loss[0] - want) <= 2e-6 * max(abs(want), 1)
    close(dx, 2 / by * (0.5 * np.tanh(x / 2) + 0.5 - t) * valid)
    assert (over == dx).all()


@pytest.mark.parametrize("count", [1, 50, 20001])
def test_euclidean_loss_is_half_the_squared_distance(count, unit, every_way):
    a, b, dloss = normal(1, count), normal(2, count), np.float32([3.0])

    def make(memory):
        A, B, D, loss, dx = memory.put(a), memory.put(b), memory.put(dloss), memory.empty(1), memory.empty(count)
        scratch = memory.scratch(cpu.euclidean_loss_workspace(count))
        cpu.euclidean_loss_forward(count, loss=at(loss), a=at(A), b=at(B), divisor=8.0, workspace=scratch)()
        cpu.euclidean_loss_backward(count, da=at(dx), a=at(A), b=at(B), dloss=at(D), divisor=4.0)()
        return loss, dx

    loss, dx = every_way(make)
    d = a.astype(np.float64) - b
    assert abs(loss[0] / ((d * d).sum() / 8) - 1) < 1e-6
    close(dx, 0.75 * d)


def window_sum(values, size, across):
    """Sums over `size` channels, or size x size pixels, around each element of [n, h, w, c]."""
    half, total = size // 2, np.zeros_like(values)
    if across:
        padded = np.pad(values, ((0, 0), (0, 0), (0, 0), (half, half)))
        return sum(padded[..., i : i + values.shape[3]] for i in range(size))
    padded = np.pad(values, ((0, 0), (half, half), (half, half), (0, 0)))
    for i in range(size):
        for j in range(size):
            total += padded[:, i : i + values.shape[1], j : j + values.shape[2]]
    return total


@pytest.mark.parametrize("beta", [0.75, 0.6, 0.5])
@pytest.mark.parametrize("across", [True, False])
@pytest.mark.parametrize(
    "shape, size", [((2, 7, 5, 36), 5), ((1, 3, 4, 3), 5), ((3, 13, 1, 20), 3), ((2, 40, 40, 96), 5)]
)
def test_lrn_divides_by_a_power_of_the_squares_around(shape, size, across, beta, unit, every_way):
    n, h, w, c = shape
    x, dy, before = normal(1, *shape), normal(2, *shape), normal(3, *shape)
    how = {"n": n, "h": h, "w": w, "c": c, "size": size, "across": across}
    numbers = {"alpha": 0.1, "k": 1.5, "beta": beta}

    def make(memory):
        X, DY, y = memory.put(x), memory.put(dy), memory.empty(*shape)
        dx, over, added = memory.empty(*shape), memory.put(x), memory.put(before)
        forward = memory.scratch(cpu.lrn_workspace(**how, backward=False))
        back = memory.scratch(cpu.lrn_workspace(**how, backward=True))
        cpu.lrn_forward(**how, **numbers, y=at(y), x=at(X), workspace=forward)()
        cpu.lrn_backward(**how, **numbers, dx=at(dx), x=at(X), dy=at(DY), workspace=back)()
        cpu.lrn_backward(**how, **numbers, dx=at(added), x=at(X), dy=at(DY), accumulate=True, workspace=back)()
        if across:
            cpu.lrn_backward(**how, **numbers, dx=at(over), x=at(over), dy=at(DY), workspace=back)()
            cpu.lrn_forward(**how, **numbers, y=at(X), x=at(X), workspace=forward)()
        return y, dx, added, (X if across else y), (over if across else dx)

    y, dx, added, own, over = every_way(make)
    x, dy = x.astype(np.float64), dy.astype(np.float64)
    s = 1.5 + 0.1 * window_sum(x * x, size, across)
    close(y, x * s**-beta)
    want = dy * s**-beta - 2 * 0.1 * beta * x * window_sum(dy * x * s ** (-beta - 1), size, across)
    close(dx, want)
    assert (own == y).all() and (over == dx).all() and (added == before + dx).all()


def line(size, out):
    """[out, size]: the bilinear weights of one axis, corners on corners."""
    weights = np.zeros((out, size))
    for i in range(out):
        low, rest = divmod(i * (size - 1), out - 1) if out > 1 else (0, 0)
        t = rest / (out - 1) if out > 1 else 0
        weights[i, low] += 1 - t
        if t:
            weights[i, low + 1] += t
    return weights


@pytest.mark.parametrize(
    "size, out, first, part",
    [
        ((7, 5), (13, 9), (0, 0), (7, 5)),
        ((9, 8), (4, 5), (1, 2), (7, 4)),
        ((6, 6), (1, 1), (0, 0), (6, 6)),
        ((1, 1), (5, 3), (0, 0), (1, 1)),
        ((5, 4), (33, 25), (0, 0), (5, 4)),
        ((2, 1), (150, 70), (0, 0), (2, 1)),
    ],
)
def test_interp_is_bilinear_and_its_backward_the_transpose(size, out, first, part, unit, every_way):
    n, c = 2, 20
    x, dy = normal(1, n, *size, c), normal(2, n, *out, c)
    before = normal(3, *x.shape)
    how = {"n": n, "c": c, "size": size, "out": out, "begin": first, "region": part}

    def make(memory):
        X, DY, y, dx = memory.put(x), memory.put(dy), memory.empty(*dy.shape), memory.empty(*x.shape)
        added = memory.put(before)
        cpu.interp_forward(**how, y=at(y), x=at(X))()
        cpu.interp_backward(**how, dx=at(dx), dy=at(DY))()
        cpu.interp_backward(**how, dx=at(added), dy=at(DY), accumulate=True)()
        return y, dx, added

    y, dx, added = every_way(make)
    rows, columns = line(part[0], out[0]), line(part[1], out[1])
    inside = (slice(None), slice(first[0], first[0] + part[0]), slice(first[1], first[1] + part[1]))
    close(y, np.einsum("ih,jw,nhwc->nijc", rows, columns, x[inside]))
    want = np.zeros(x.shape)
    want[inside] = np.einsum("ih,jw,nijc->nhwc", rows, columns, dy)
    close(dx, want)
    close(added, before + want)


@pytest.mark.parametrize("rows, width", [(1, 100), (2, 40001), (500, 3), (77, 64)])
def test_copied_rows_keep_clear_of_their_neighbours(rows, width, unit, every_way):
    x, frame = normal(1, rows, width + 5), normal(2, rows, width + 9)

    def make(memory):
        X, out, added = memory.put(x), memory.put(frame), memory.put(frame)
        how = {"out_pitch": width + 9, "x": at(X) + 8, "x_pitch": width + 5}
        cpu.copy_rows(rows, width, out=at(out) + 16, **how)()
        cpu.copy_rows(rows, width, out=at(added) + 16, accumulate=True, **how)()
        return out, added

    out, added = every_way(make)
    want, sums = frame.copy(), frame.copy()
    want[:, 4 : 4 + width] = x[:, 2 : 2 + width]
    sums[:, 4 : 4 + width] += x[:, 2 : 2 + width]
    assert (out == want).all() and (added == sums).all()


@pytest.mark.parametrize("n, rows, columns", [(1, 1, 1), (3, 3, 91), (2, 50, 33), (1, 3, 70000), (2, 400, 17)])
def test_transpose_turns_each_image_over(n, rows, columns, unit, every_way):
    x, before = normal(1, n, rows, columns), normal(2, n, columns, rows)

    def make(memory):
        X, out, added = memory.put(x), memory.empty(n, columns, rows), memory.put(before)
        cpu.transpose(n, rows, columns, out=at(out), x=at(X))()
        cpu.transpose(n, rows, columns, out=at(added), x=at(X), accumulate=True)()
        return out, added

    out, added = every_way(make)
    assert (out == x.transpose(0, 2, 1)).all() and (added == before + out).all()


def test_a_block_is_copied_between_any_strides(unit, every_way):
    x, frame = normal(1, 4, 9, 7, 5), normal(2, 7, 9, 5, 3)

    def make(memory):
        X, out, cropped = memory.put(x), memory.put(frame), memory.empty(2, 3, 4, 5)
        strides = [s // 4 for s in X.strides]
        cpu.copy_block(
            [3, 9, 7, 5], out=at(out), out_strides=[1, 15, 135, 3], x=at(X), x_strides=strides, accumulate=True
        )()
        corner = at(X) + X[1, 2, 3].ctypes.data - at(X)
        cpu.copy_block([2, 3, 4, 5], out=at(cropped), out_strides=[60, 20, 5, 1], x=corner, x_strides=strides)()
        return out, cropped

    out, cropped = every_way(make)
    assert (out == frame + x[:3].transpose(2, 1, 3, 0)).all()
    assert (cropped == x[1:3, 2:5, 3:7]).all()
