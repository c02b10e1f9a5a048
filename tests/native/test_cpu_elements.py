"""Element-by-element kernels of the cpu device: activations, dropout, eltwise, updates, norms."""

import numpy as np
import pytest

from layermem._native import cpu
from tests.native.numbers import at, close, normal

COUNTS = [1, 7, 16, 33, 40001]


def sigmoid64(x):
    return 0.5 * np.tanh(0.5 * x) + 0.5


# name: (constants, float64 formula); the slopes get a = dy, b = x or y
FUNCTIONS = {
    "scale": ({"alpha": 0.5}, lambda a: 0.5 * a),
    "sigmoid": ({}, sigmoid64),
    "tanh": ({}, np.tanh),
    "elu": ({"alpha": 0.7}, lambda a: np.where(a > 0, a, 0.7 * np.expm1(a))),
    "absval": ({}, np.abs),
    "exp": ({"alpha": 0.3, "beta": 2.0}, lambda a: 2 * np.exp(0.3 * a)),
    "bnll": ({}, lambda a: np.logaddexp(0, a)),
    "clip": ({"alpha": -0.5, "beta": 1.5}, lambda a: np.clip(a, -0.5, 1.5)),
    "swish": ({"alpha": 1.5}, lambda a: a * sigmoid64(1.5 * a)),
    "threshold": ({"alpha": 0.25}, lambda a: a > 0.25),
}
PAIRS = {
    "add": ({"alpha": 0.5, "beta": -2.0}, lambda a, b: 0.5 * a - 2 * b),
    "multiply": ({}, lambda a, b: a * b),
    "relu_backward": ({"alpha": 0.1}, lambda a, b: np.where(b > 0, a, np.float32(0.1) * a)),
    "sigmoid_backward": ({}, lambda a, b: a * b * (1 - b)),
    "tanh_backward": ({}, lambda a, b: a * (1 - b * b)),
    "elu_backward": ({"alpha": 0.7}, lambda a, b: np.where(b > 0, a, a * 0.7 * np.exp(b))),
    "absval_backward": ({}, lambda a, b: a * np.sign(b)),
    "exp_backward": ({"alpha": 0.3}, lambda a, b: 0.3 * a * b),
    "bnll_backward": ({}, lambda a, b: a * sigmoid64(b)),
    "clip_backward": ({"alpha": -0.5, "beta": 1.5}, lambda a, b: np.where((b >= -0.5) & (b <= 1.5), a, 0)),
    "swish_backward": (
        {"alpha": 1.5},
        lambda a, b: a * (sigmoid64(1.5 * b) + 1.5 * b * sigmoid64(1.5 * b) * (1 - sigmoid64(1.5 * b))),
    ),
}
POWERS = [1.0, 2.0, 3.0, 0.5, -1.0, 0.0, -0.75, 1.7]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_agrees_with_its_formula_in_place_too(name, count, unit, every_way):
    constants, formula = FUNCTIONS[name]
    x, before = normal(1, count) * 3, normal(2, count)

    def make(memory):
        X, y, added, own = memory.put(x), memory.empty(count), memory.put(before), memory.put(x)
        cpu.pointwise(name, count, out=at(y), a=at(X), **constants)()
        cpu.pointwise(name, count, out=at(own), a=at(own), **constants)()
        cpu.pointwise(name, count, out=at(added), a=at(X), accumulate=True, **constants)()
        return y, own, added

    y, own, added = every_way(make)
    want = formula(x.astype(np.float64))
    close(y, want, 1e-6)
    assert (own == y).all() and (added == before + y).all()


@pytest.mark.parametrize("name", PAIRS)
def test_a_function_of_two_agrees_with_its_formula(name, unit, every_way):
    constants, formula = PAIRS[name]
    a, b = normal(1, 1001), normal(2, 1001)

    def make(memory):
        A, B, out, own = memory.put(a), memory.put(b), memory.empty(1001), memory.put(b)
        cpu.pointwise(name, 1001, out=at(out), a=at(A), b=at(B), **constants)()
        cpu.pointwise(name, 1001, out=at(own), a=at(A), b=at(own), **constants)()
        return out, own

    out, own = every_way(make)
    close(out, formula(a.astype(np.float64), b.astype(np.float64)), 1e-6)
    assert (own == out).all()


@pytest.mark.parametrize("power", POWERS)
def test_power_and_its_slope_agree_with_their_formulas(power, unit, every_way):
    x, dy = np.abs(normal(1, 333)) + 0.1, normal(2, 333)
    if power in (2.0, 3.0):
        x[::2] *= -1  # whole powers take negative numbers

    def make(memory):
        X, DY, y, dx = memory.put(x), memory.put(dy), memory.empty(333), memory.empty(333)
        cpu.pointwise("power", 333, out=at(y), a=at(X), alpha=power, beta=1.5, gamma=0.0)()
        cpu.pointwise("power_backward", 333, out=at(dx), a=at(DY), b=at(X), alpha=power, beta=1.5, gamma=0.0)()
        return y, dx

    y, dx = every_way(make)
    x = x.astype(np.float64)
    close(y, (1.5 * x) ** power)
    close(dx, dy * power * 1.5 * (1.5 * x) ** (power - 1))


def test_logarithm_and_its_slope_agree_with_their_formulas(unit, every_way):
    x, dy = np.exp(3 * normal(1, 500)), normal(2, 500)

    def make(memory):
        X, DY, y, dx = memory.put(x), memory.put(dy), memory.empty(500), memory.empty(500)
        cpu.pointwise("log", 500, out=at(y), a=at(X), alpha=2.0, beta=0.5, gamma=3.0)()
        cpu.pointwise("log_backward", 500, out=at(dx), a=at(DY), b=at(X), alpha=2.0, beta=0.5, gamma=3.0)()
        return y, dx

    y, dx = every_way(make)
    close(y, 3 * np.log(2 * x.astype(np.float64) + 0.5))
    close(dx, dy * 6 / (2 * x.astype(np.float64) + 0.5))


def test_exp_and_log_hold_at_the_ends_of_their_range(unit, memory):
    x = np.float32([-200, -104, -90, -87.4, -1e-8, 0, 1e-8, 88.7, 89, 200, -np.inf, np.inf, np.nan])
    X, y = memory.put(x), memory.empty(len(x))
    cpu.pointwise("exp", len(x), out=at(y), a=at(X), alpha=1.0, beta=1.0)()
    with np.errstate(over="ignore", under="ignore"):
        want = np.exp(x)
    assert np.allclose(y, want, rtol=3e-7, atol=3e-45, equal_nan=True)
    z = np.float32([0, 1.2e-38, 1e-20, 0.5, 0.999999, 1, 1.000001, 2, 1e30, np.inf, -1, np.nan])
    Z, y = memory.put(z), memory.empty(len(z))
    cpu.pointwise("log", len(z), out=at(y), a=at(Z), alpha=1.0, beta=0.0, gamma=1.0)()
    with np.errstate(divide="ignore", invalid="ignore"):
        want = np.log(z)
    assert np.allclose(y, want, rtol=3e-7, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("slope", [0.0, 0.2])
@pytest.mark.parametrize("count", COUNTS)
def test_relu_keeps_one_bit_an_element_for_its_backward(count, slope, unit, every_way):
    x, dy, before = normal(1, count), normal(2, count), normal(3, count)
    x[::5] = 0

    def make(memory):
        X, DY, y, own = memory.put(x), memory.put(dy), memory.empty(count), memory.put(x)
        mask, dx = memory.empty(-(-count // 8), dtype=np.uint8), memory.empty(count)
        over, added = memory.put(dy), memory.put(before)
        cpu.relu_forward(count, y=at(y), x=at(X), slope=slope, mask=at(mask))()
        cpu.relu_forward(count, y=at(own), x=at(own), slope=slope)()
        cpu.relu_backward(count, dx=at(dx), dy=at(DY), mask=at(mask), slope=slope)()
        cpu.relu_backward(count, dx=at(over), dy=at(over), mask=at(mask), slope=slope)()
        cpu.relu_backward(count, dx=at(added), dy=at(DY), mask=at(mask), slope=slope, accumulate=True)()
        return y, own, mask, dx, over, added

    y, own, mask, dx, over, added = every_way(make)
    assert (y == np.where(x > 0, x, np.float32(slope) * x)).all() and (own == y).all()
    assert (mask == np.packbits(x > 0, bitorder="little")).all()
    assert (dx == np.where(x > 0, dy, np.float32(slope) * dy)).all() and (over == dx).all()
    assert (added == before + dx).all()


def test_relu_gives_zero_for_minus_infinity_and_passes_nan_on(unit, memory):
    x, y = memory.put(np.float32([-np.inf, np.nan, -0.0, np.inf])), memory.empty(4)
    cpu.relu_forward(4, y=at(y), x=at(x))()
    assert np.array_equal(y, [0, np.nan, 0, np.inf], equal_nan=True)


@pytest.mark.parametrize("count", COUNTS)
def test_clip_marks_what_lies_within_its_bounds(count, unit, every_way):
    x = normal(1, count)

    def make(memory):
        X, y, mask = memory.put(x), memory.empty(count), memory.empty(-(-count // 8), dtype=np.uint8)
        cpu.clip_forward(count, y=at(y), x=at(X), mask=at(mask), lowest=-0.5, highest=0.75)()
        return y, mask

    y, mask = every_way(make)
    assert (y == np.clip(x, np.float32(-0.5), np.float32(0.75))).all()
    assert (mask == np.packbits((x >= -0.5) & (x <= 0.75), bitorder="little")).all()


def philox(counter, key):
    """Philox4x32-10 in Python's integers."""
    c, k, word = list(counter), list(key), 0xFFFFFFFF
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & word, (a >> 32) ^ c[3] ^ k[1], a & word]
        k = [(k[0] + 0x9E3779B9) & word, (k[1] + 0xBB67AE85) & word]
    return c


def test_philox_gives_the_published_words():
    assert philox((0, 0, 0, 0), (0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.parametrize("count", [1, 63, 130, 20001])
def test_dropout_drops_where_its_random_word_is_below_the_ratio(count, unit, every_way):
    x, ratio, seed, stream, step = normal(1, count), 0.3, (5 << 32) + 77, 0xDEADBEEF, (3 << 32) + 9
    words = [w for e in range(-(-count // 4)) for w in philox((e, 0, 9, 3), (77, stream))][:count]
    kept = np.array(words) >= int(ratio * 2**32)

    def make(memory):
        X, y, own, added = memory.put(x), memory.empty(count), memory.put(x), memory.put(x)
        cpu.dropout(count, out=at(y), x=at(X), ratio=ratio, seed=seed, stream=stream)(step)
        cpu.dropout(count, out=at(own), x=at(own), ratio=ratio, seed=seed, stream=stream)(step)
        cpu.dropout(count, out=at(added), x=at(X), ratio=ratio, seed=seed, stream=stream, accumulate=True)(step)
        return y, own, added

    y, own, added = every_way(make)
    assert (y == np.where(kept, x * np.float32(1 / 0.7), 0)).all()
    assert (own == y).all() and (added == x + y).all()


@pytest.mark.parametrize("inputs", [2, 3, 5])
@pytest.mark.parametrize("operation", ["sum", "product", "max"])
def test_eltwise_combines_its_inputs_and_sends_the_gradient_back(operation, inputs, unit, every_way):
    count = 20011
    xs = [np.round(normal(i, count)) for i in range(inputs)]
    dy, before = normal(50, count), normal(51, count)
    coefficients = [1.0, -0.5, 2.0, 1.0, 0.25][:inputs]
    accumulate = [i == 1 for i in range(inputs)]

    def make(memory):
        X, DY, y = [memory.put(x) for x in xs], memory.put(dy), memory.empty(count)
        dxs = [memory.put(before) if add else memory.empty(count) for add in accumulate]
        winner = memory.empty(count, dtype=np.uint8)
        ins, outs = [at(a) for a in X], [0 if i == 2 else at(a) for i, a in enumerate(dxs)]
        over = at(X[-1])  # an output may lie on any input
        if operation == "sum":
            cpu.eltwise_sum(count, y=at(y), xs=ins, coefficients=coefficients)()
            cpu.eltwise_sum_backward(count, dxs=outs, dy=at(DY), coefficients=coefficients, accumulate=accumulate)()
            cpu.eltwise_sum(count, y=over, xs=ins, coefficients=coefficients)()
        elif operation == "product":
            cpu.eltwise_product(count, y=at(y), xs=ins)()
            cpu.eltwise_product_backward(count, dxs=outs, xs=ins, dy=at(DY), accumulate=accumulate)()
            cpu.eltwise_product(count, y=over, xs=ins)()
        else:
            cpu.eltwise_max(count, y=at(y), xs=ins, argmax=at(winner))()
            cpu.eltwise_max_backward(count, dxs=outs, dy=at(DY), argmax=at(winner), accumulate=accumulate)()
            cpu.eltwise_max(count, y=over, xs=ins)()
        return y, X[-1], *[dx for i, dx in enumerate(dxs) if i != 2]

    y, over, *dxs = every_way(make)
    stack = np.stack(xs).astype(np.float64)
    if operation == "sum":
        want, slopes = np.tensordot(coefficients, stack, 1), np.array(coefficients)[:, None] * np.ones(count)
    elif operation == "product":
        want, slopes = stack.prod(axis=0), np.stack([np.delete(stack, i, 0).prod(axis=0) for i in range(inputs)])
    else:
        last = inputs - 1 - stack[::-1].argmax(axis=0)  # the last of equals, as in Caffe's CUDA kernel
        want, slopes = stack.max(axis=0), last == np.arange(inputs)[:, None]
    close(y, want)
    assert (over == y).all()
    for i, dx in zip([i for i in range(inputs) if i != 2], dxs):
        close(dx, dy * slopes[i] + (before if accumulate[i] else 0))


@pytest.mark.parametrize("inputs", [2, 3])
def test_a_rectified_sum_keeps_one_bit_an_element(inputs, unit, every_way):
    count = 20011
    xs, dy = [normal(i, count) for i in range(inputs)], normal(50, count)

    def make(memory):
        X, DY, y = [memory.put(x) for x in xs], memory.put(dy), memory.empty(count)
        mask, dx = memory.empty(-(-count // 8), dtype=np.uint8), memory.empty(count)
        ones = [1.0] * inputs
        cpu.eltwise_sum(count, y=at(y), xs=[at(x) for x in X], coefficients=ones, relu=True, mask=at(mask))()
        cpu.eltwise_sum_backward(
            count, dxs=[at(dx), at(DY)], dy=at(DY), coefficients=[2.0, 1.0], accumulate=[False] * 2, mask=at(mask)
        )()
        from_y, other = memory.put(y), memory.put(dy)  # the same with y in the mask's place, over y and over dy
        cpu.eltwise_sum_backward(
            count, dxs=[at(from_y), at(other)], dy=at(other), coefficients=[2.0, 1.0], accumulate=[False] * 2,
            y=at(from_y),
        )()  # fmt: skip
        cpu.eltwise_sum(count, y=at(X[1]), xs=[at(x) for x in X], coefficients=ones, relu=True)()
        return y, X[1], mask, dx, DY, from_y, other

    y, own, mask, dx, over, from_y, other = every_way(make)
    assert (from_y == dx).all() and (other == over).all()
    total = sum(xs[1:], xs[0])
    assert (y == np.maximum(total, 0)).all() and (own == y).all()
    assert (mask == np.packbits(total > 0, bitorder="little")).all()
    assert (over == np.where(total > 0, dy, 0)).all() and (dx == 2 * over).all()


def test_gradients_of_an_eltwise_may_lie_on_each_others_inputs(unit, memory):
    a, b, dy = normal(1, 100), normal(2, 100), normal(3, 100)
    A, B, DY = memory.put(a), memory.put(b), memory.put(dy)
    cpu.eltwise_product_backward(100, dxs=[at(A), at(B)], xs=[at(A), at(B)], dy=at(DY), accumulate=[False, False])()
    assert (dy * b == A).all() and (dy * a == B).all()


def updates64(rule, w, g, h0, h1, rate, m, m2, delta):
    """The rules of Caffe's solvers, in float64."""
    if rule == "SGD":
        h0 = m * h0 + rate * g
        return w - h0, h0, h1
    if rule == "Nesterov":
        v = m * h0 + rate * g
        return w - ((1 + m) * v - m * h0), v, h1
    if rule in ("AdaGrad", "RMSProp"):
        h0 = h0 + g * g if rule == "AdaGrad" else m * h0 + (1 - m) * g * g
        return w - rate * g / (np.sqrt(h0) + delta), h0, h1
    if rule == "AdaDelta":
        h0 = m * h0 + (1 - m) * g * g
        u = g * np.sqrt((h1 + delta) / (h0 + delta))
        return w - rate * u, h0, m * h1 + (1 - m) * u * u
    h0, h1 = m * h0 + (1 - m) * g, m2 * h1 + (1 - m2) * g * g
    return w - rate * h0 / (np.sqrt(h1) + delta), h0, h1


@pytest.mark.parametrize("decay, l1", [(0, False), (0.01, False), (0.01, True)])
@pytest.mark.parametrize("rule", ["SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"])
def test_an_update_moves_weights_and_histories_by_its_rule(rule, decay, l1, unit, every_way):
    count, rate, gain, m, m2, delta = 20003, 0.1, 0.5, 0.9, 0.99, 1e-3
    w, dw, h0, h1 = normal(1, count), normal(2, count), np.abs(normal(3, count)), np.abs(normal(4, count))
    two = rule in ("AdaDelta", "Adam")

    def make(memory):
        W, DW, H0, H1 = memory.put(w), memory.put(dw), memory.put(h0), memory.put(h1)
        launch = cpu.update(
            rule, count, w=at(W), dw=at(DW), h0=at(H0), h1=at(H1) if two else 0, decay=decay, l1=l1,
            momentum=m, momentum2=m2, delta=delta,
        )  # fmt: skip
        launch(rate, gain)
        return W, H0, H1

    got = every_way(make)
    w, dw, h0, h1 = (a.astype(np.float64) for a in (w, dw, h0, h1))
    gradient = gain * dw + decay * (np.sign(w) if l1 else w)
    for a, b in zip(got, updates64(rule, w, gradient, h0, h1, rate, m, m2, delta)):
        close(a, b)


def test_the_sum_of_squares_runs_over_all_arrays(unit, every_way):
    arrays = [normal(1, 50001), normal(2, 3), normal(3, 16384) * 10, normal(4, 64 * 16384 + 1)]
    counts = [a.size for a in arrays]

    def make(memory):
        X, out, norm = [memory.put(a) for a in arrays], memory.empty(1), memory.empty(1)
        cpu.sum_of_squares(counts, out=at(out), xs=[at(a) for a in X])()
        cpu.sum_of_squares(counts, out=at(norm), xs=[at(a) for a in X], root=True)()
        return out, norm

    out, norm = every_way(make)
    want = sum(np.sum(a.astype(np.float64) ** 2) for a in arrays)
    assert abs(out[0] / want - 1) < 1e-6 and abs(norm[0] / np.sqrt(want) - 1) < 1e-6


def test_a_launch_of_an_unknown_function_or_rule_is_refused():
    with pytest.raises(ValueError, match="unknown function 'cosine'"):
        cpu.pointwise("cosine", 1, out=0)
    with pytest.raises(ValueError, match="Adam keeps two histories"):
        cpu.update("Adam", 1, w=0, dw=0, h0=8)
    with pytest.raises(ValueError, match="ratio"):
        cpu.dropout(1, out=0, x=0, ratio=1.0, seed=0, stream=0)
