"""Activations of the cpu device: pointwise functions, ReLU and Clip with their masks."""

import numpy as np
import pytest

from layermem.backends.cpu.support.launch import launch
from layermem.backends.reference.activation import FUNCTIONS
from layermem.ops import Kind, Pointwise
from tests.cases import select
from tests.native.numbers import at, close, normal

COUNTS = [1, 7, 16, 33, 40001]


CASES = [case for case in select("medium", formula=True) if isinstance(case.layer().record, Pointwise)]
POINTWISE = [case for case in CASES if case.layer().record.kind is not Kind.RELU]  # which has a kernel of its own
SLOPES = [case for case in CASES if case.layer().derivative_reads and case.layer().has_gradient]
PAIRS = {"add": ({"alpha": 0.5, "beta": -2.0}, lambda a, b: 0.5 * a - 2 * b), "multiply": ({}, lambda a, b: a * b)}
POWERS = [1.0, 2.0, 3.0, 0.5, -1.0, 0.0, -0.75, 1.7]


def constants_of(record):
    return {"alpha": record.alpha, "beta": record.beta, "gamma": record.gamma}


def numbers(case, seed, count):
    """Random numbers that the function of a case takes."""
    x = normal(seed, count)
    return np.abs(x) + np.float32(0.1) if case.positive else x


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("case", POINTWISE, ids=lambda case: case.name)
def test_a_function_agrees_with_its_formula_in_place_too(case, count, isa, every_way):
    record = case.layer().record
    name, constants, x, before = record.kind.value, constants_of(record), numbers(case, 1, count), normal(2, count)

    def make(memory):
        X, y, added, own = memory.put(x), memory.empty(count), memory.put(before), memory.put(x)
        launch("pointwise", name, count, out=at(y), a=at(X), **constants)()
        launch("pointwise", name, count, out=at(own), a=at(own), **constants)()
        launch("pointwise", name, count, out=at(added), a=at(X), accumulate=True, **constants)()
        return y, own, added

    y, own, added = every_way(make)
    close(y, case.formula(x.astype(np.float64)))
    assert (own == y).all() and (added == before + y).all()


@pytest.mark.parametrize("case", SLOPES, ids=lambda case: case.name)
def test_a_slope_agrees_with_double_precision(case, isa, every_way):
    """That of the reference, which tests/layers/test_activation.py compares with central differences."""
    layer = case.layer()
    record, reads = layer.record, layer.derivative_reads[0]
    dy, x = normal(1, 1001), numbers(case, 2, 1001)
    source = x if reads == "x0" else np.float32(case.formula(x.astype(np.float64)))

    def make(memory):
        A, B, out, own = memory.put(dy), memory.put(source), memory.empty(1001), memory.put(source)
        for to, b in ((out, B), (own, own)):
            launch(
                "pointwise", f"{record.kind.value}_backward", 1001, out=at(to), a=at(A), b=at(b), **constants_of(record)
            )()
        return out, own

    out, own = every_way(make)
    close(out, dy * np.asarray(FUNCTIONS[record.kind][1](record, source.astype(np.float64)), np.float64))
    assert (own == out).all()


@pytest.mark.parametrize("name", PAIRS)
def test_a_function_of_two_agrees_with_its_formula(name, isa, every_way):
    constants, formula = PAIRS[name]
    a, b = normal(1, 1001), normal(2, 1001)

    def make(memory):
        A, B, out, own = memory.put(a), memory.put(b), memory.empty(1001), memory.put(b)
        launch("pointwise", name, 1001, out=at(out), a=at(A), b=at(B), **constants)()
        launch("pointwise", name, 1001, out=at(own), a=at(A), b=at(own), **constants)()
        return out, own

    out, own = every_way(make)
    close(out, formula(a.astype(np.float64), b.astype(np.float64)), 1e-6)
    assert (own == out).all()


def test_scale_multiplies_by_a_number(isa, memory):
    x, y = memory.put(normal(1, 1001)), memory.empty(1001)
    launch("pointwise", "scale", 1001, out=at(y), a=at(x), alpha=0.5)()
    assert (y == np.float32(0.5) * x).all()


@pytest.mark.parametrize("power", POWERS)
def test_power_and_its_slope_agree_with_their_formulas(power, isa, every_way):
    x, dy = np.abs(normal(1, 333)) + 0.1, normal(2, 333)
    if power in (2.0, 3.0):
        x[::2] *= -1  # whole powers take negative numbers

    def make(memory):
        X, DY, y, dx = memory.put(x), memory.put(dy), memory.empty(333), memory.empty(333)
        launch("pointwise", "power", 333, out=at(y), a=at(X), alpha=power, beta=1.5, gamma=0.0)()
        launch("pointwise", "power_backward", 333, out=at(dx), a=at(DY), b=at(X), alpha=power, beta=1.5, gamma=0.0)()
        return y, dx

    y, dx = every_way(make)
    x = x.astype(np.float64)
    close(y, (1.5 * x) ** power)
    close(dx, dy * power * 1.5 * (1.5 * x) ** (power - 1))


def test_exp_and_log_hold_at_the_ends_of_their_range(isa, memory):
    x = np.float32([-200, -104, -90, -87.4, -1e-8, 0, 1e-8, 88.7, 89, 200, -np.inf, np.inf, np.nan])
    X, y = memory.put(x), memory.empty(len(x))
    launch("pointwise", "exp", len(x), out=at(y), a=at(X), alpha=1.0, beta=1.0)()
    with np.errstate(over="ignore", under="ignore"):
        want = np.exp(x)
    assert np.allclose(y, want, rtol=3e-7, atol=3e-45, equal_nan=True)
    z = np.float32([0, 1.2e-38, 1e-20, 0.5, 0.999999, 1, 1.000001, 2, 1e30, np.inf, -1, np.nan])
    Z, y = memory.put(z), memory.empty(len(z))
    launch("pointwise", "log", len(z), out=at(y), a=at(Z), alpha=1.0, beta=0.0, gamma=1.0)()
    with np.errstate(divide="ignore", invalid="ignore"):
        want = np.log(z)
    assert np.allclose(y, want, rtol=3e-7, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("slope", [0.0, 0.2])
@pytest.mark.parametrize("count", COUNTS)
def test_relu_keeps_one_bit_an_element_for_its_backward(count, slope, isa, every_way):
    x, dy, before = normal(1, count), normal(2, count), normal(3, count)
    x[::5] = 0

    def make(memory):
        X, DY, y, own = memory.put(x), memory.put(dy), memory.empty(count), memory.put(x)
        mask, dx = memory.empty(-(-count // 8), dtype=np.uint8), memory.empty(count)
        over, added = memory.put(dy), memory.put(before)
        launch("relu_forward", count, y=at(y), x=at(X), slope=slope, bits=at(mask))()
        launch("relu_forward", count, y=at(own), x=at(own), slope=slope)()
        launch("relu_backward", count, dx=at(dx), dy=at(DY), mask=at(mask), slope=slope)()
        launch("relu_backward", count, dx=at(over), dy=at(over), mask=at(mask), slope=slope)()
        launch("relu_backward", count, dx=at(added), dy=at(DY), mask=at(mask), slope=slope, accumulate=True)()
        return y, own, mask, dx, over, added

    y, own, mask, dx, over, added = every_way(make)
    assert (y == np.where(x > 0, x, np.float32(slope) * x)).all() and (own == y).all()
    assert (mask == np.packbits(x > 0, bitorder="little")).all()
    assert (dx == np.where(x > 0, dy, np.float32(slope) * dy)).all() and (over == dx).all()
    assert (added == before + dx).all()


def test_relu_gives_zero_for_minus_infinity_and_passes_nan_on(isa, memory):
    x, y = memory.put(np.float32([-np.inf, np.nan, -0.0, np.inf])), memory.empty(4)
    launch("relu_forward", 4, y=at(y), x=at(x))()
    assert np.array_equal(y, [0, np.nan, 0, np.inf], equal_nan=True)


@pytest.mark.parametrize("count", COUNTS)
def test_clip_marks_what_lies_within_its_bounds(count, isa, every_way):
    x = normal(1, count)

    def make(memory):
        X, y, mask = memory.put(x), memory.empty(count), memory.empty(-(-count // 8), dtype=np.uint8)
        launch("clip_forward", count, y=at(y), x=at(X), mask=at(mask), lowest=-0.5, highest=0.75)()
        return y, mask

    y, mask = every_way(make)
    assert (y == np.clip(x, np.float32(-0.5), np.float32(0.75))).all()
    assert (mask == np.packbits((x >= -0.5) & (x <= 0.75), bitorder="little")).all()


def test_a_launch_of_an_unknown_function_or_rule_is_refused():
    with pytest.raises(ValueError, match="unknown function 'cosine'"):
        launch("pointwise", "cosine", 1, out=0)
    with pytest.raises(ValueError, match="Adam keeps two history blobs"):
        launch("update", 1, rule="Adam", w=0, dw=0, h0=8)
    with pytest.raises(ValueError, match="ratio"):
        launch("dropout", 1, out=0, x=0, ratio=1.0, seed=0, stream=0)
