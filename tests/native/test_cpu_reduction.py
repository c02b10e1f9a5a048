"""Sums along an axis, the largest of a row, and losses item by item, against formulas in float64."""

import numpy as np
import pytest

from layermem._native import cpu
from tests.native.numbers import at, close, normal

TERMS = {"plain": (lambda x: x, np.ones_like), "absolute": (np.abs, np.sign), "square": (np.square, lambda x: 2 * x)}


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("shape", [(1, 40001, 1), (700, 33, 1), (3, 130, 20), (2, 5, 700), (1, 1, 1)])
def test_a_reduction_sums_along_its_axis_and_spreads_the_gradient(shape, term, unit, every_way):
    s, (outer, _, inner) = cpu.Axis(*shape), shape
    x, dy, y0, dx0 = normal(1, *shape), normal(2, outer, inner), normal(3, outer, inner), normal(4, *shape)

    def make(memory):
        X, DY, y, dx, over = (
            memory.put(x),
            memory.put(dy),
            memory.empty(outer, inner),
            memory.empty(*shape),
            memory.put(x),
        )
        more, added = memory.put(y0), memory.put(dx0)
        scratch = memory.scratch(cpu.reduce_workspace(s))
        cpu.reduce(s, term, y=at(y), x=at(X), factor=0.5, workspace=scratch)()
        cpu.reduce(s, term, y=at(more), x=at(X), factor=0.5, accumulate=True, workspace=scratch)()
        cpu.reduce_backward(s, term, dx=at(dx), x=at(X), dy=at(DY), factor=0.5)()
        cpu.reduce_backward(s, term, dx=at(over), x=at(over), dy=at(DY), factor=0.5)()
        cpu.reduce_backward(s, term, dx=at(added), x=at(X), dy=at(DY), factor=0.5, accumulate=True)()
        return y, more, dx, over, added

    y, more, dx, over, added = every_way(make)
    value, slope = TERMS[term]
    x = x.astype(np.float64)
    terms = 0.5 * value(x)
    assert np.abs(y - terms.sum(axis=1)).max() <= 3e-7 * np.abs(terms).sum(axis=1).max()
    assert (more == y0 + y).all()
    close(dx, 0.5 * dy[:, None] * slope(x), 1e-6)
    assert (over == dx).all() and (added == dx0 + dx).all()


@pytest.mark.parametrize(
    "rows, size, count, inner",
    [(1, 1, 1, 1), (90, 37, 5, 1), (12, 100, 100, 3), (6, 5003, 1, 2), (1500, 21, 1, 1), (90, 3, 1, 5)],
)
def test_the_largest_come_first_and_of_equals_the_last(rows, size, count, inner, unit, every_way):
    x = np.round(normal(1, rows, size) * 3)  # many equals
    x[0, -1] = np.nan

    def make(memory):
        X, place, value = memory.put(x), memory.empty(rows * count), memory.empty(rows * count)
        scratch = memory.scratch(cpu.top_k_workspace(count))
        cpu.top_k(rows, size, count, index=at(place), value=at(value), x=at(X), inner=inner, workspace=scratch)()
        return place, value

    place, value = every_way(make)
    order = np.argsort(x, axis=1, kind="stable")[:, ::-1][:, :count]

    def found(a):  # [rows / inner][count][inner]
        return a.reshape(rows // inner, inner, count).transpose(0, 2, 1).reshape(-1)

    np.testing.assert_array_equal(place, found(order))
    np.testing.assert_array_equal(value, found(np.take_along_axis(x, order, 1)))


@pytest.mark.parametrize("ignore", [None, 1])
@pytest.mark.parametrize("top_k", [1, 3])
@pytest.mark.parametrize("shape", [(70, 10, 1), (900, 21, 1), (3, 7, 40)])
def test_accuracy_counts_labels_among_the_best_and_ties_as_misses(shape, top_k, ignore, unit, every_way):
    s, (outer, classes, inner) = cpu.Axis(*shape), shape
    x = np.round(normal(1, *shape) * 2)
    x[0, 2] = np.nan
    label = np.random.default_rng(2).integers(0, classes, (outer, inner)).astype(np.float32)
    label[:, 0][:1] = 2

    def make(memory):
        X, L, share, classed, alone = (
            memory.put(x),
            memory.put(label),
            memory.empty(1),
            memory.empty(classes),
            memory.empty(1),
        )
        how = {"x": at(X), "label": at(L), "ignore_label": ignore, "top_k": top_k}
        cpu.accuracy(
            s, y=at(share), by_class=at(classed), workspace=memory.scratch(cpu.accuracy_workspace(s, True)), **how
        )()
        cpu.accuracy(s, y=at(alone), workspace=memory.scratch(cpu.accuracy_workspace(s)), **how)()
        return share, classed, alone

    share, classed, alone = every_way(make)
    found, all_of = np.zeros(classes), np.zeros(classes)
    for o in range(outer):
        for i in range(inner):
            c = int(label[o, i])
            if c != ignore:
                all_of[c] += 1
                rivals = sum(x[o, k, i] >= x[o, c, i] for k in range(classes) if k != c)
                found[c] += rivals < top_k and not np.isnan(x[o, c, i])
    assert share[0] == np.float32(found.sum() / all_of.sum()) == alone[0]
    np.testing.assert_array_equal(classed, (found / np.maximum(all_of, 1)).astype(np.float32))


def places(label, channels, pixels):
    """Of labels that count [channels][pixels], in rows [pixels][channels]."""
    return (label % pixels * channels + label // pixels).astype(int)


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("items, channels, pixels", [(1, 3, 1), (40, 5, 7), (3, 9001, 1)])
def test_the_hinge_loss_pushes_labels_up_and_others_down(items, channels, pixels, squared, unit, every_way):
    classes = channels * pixels
    x, before, dloss = normal(1, items, classes), normal(2, items, classes), np.float32([2.0])
    label = np.random.default_rng(3).integers(0, classes, items).astype(np.float32)
    geometry = (items, classes, channels)

    def make(memory):
        X, L, D, loss = memory.put(x), memory.put(label), memory.put(dloss), memory.empty(1)
        dx, over, added = memory.empty(items, classes), memory.put(x), memory.put(before)
        scratch = memory.scratch(cpu.item_loss_workspace(items, classes))
        cpu.hinge_loss_forward(*geometry, loss=at(loss), x=at(X), label=at(L), squared=squared, workspace=scratch)()
        how = {"label": at(L), "dloss": at(D), "squared": squared}
        cpu.hinge_loss_backward(*geometry, dx=at(dx), x=at(X), **how)()
        cpu.hinge_loss_backward(*geometry, dx=at(over), x=at(over), **how)()
        cpu.hinge_loss_backward(*geometry, dx=at(added), x=at(X), accumulate=True, **how)()
        return loss, dx, over, added

    loss, dx, over, added = every_way(make)
    sign = np.ones((items, classes))
    sign[np.arange(items), places(label, channels, pixels)] = -1
    hinge = np.maximum(0, 1 + sign * x.astype(np.float64))
    assert abs(loss[0] / ((hinge**2 if squared else hinge).sum() / items) - 1) < 1e-6
    close(dx, 2 / items * sign * (2 * hinge if squared else hinge > 0), 1e-6)
    assert (over == dx).all() and (added == before + dx).all()


def test_the_logistic_loss_stops_at_the_smallest_probability(unit, every_way):
    items, channels, pixels = 30, 4, 6
    p = np.random.default_rng(1).random((items, channels * pixels)).astype(np.float32)
    label = np.random.default_rng(2).integers(0, channels * pixels, items).astype(np.float32)
    at_label = (np.arange(items), places(label, channels, pixels))
    p[at_label[0][:2], at_label[1][:2]] = 0, -1
    before, dloss, geometry = normal(3, *p.shape), np.float32([3.0]), (items, channels * pixels, channels)

    def make(memory):
        P, L, D, loss = memory.put(p), memory.put(label), memory.put(dloss), memory.empty(1)
        dx, over, added = memory.empty(*p.shape), memory.put(p), memory.put(before)
        scratch = memory.scratch(cpu.item_loss_workspace(items, channels * pixels))
        cpu.logistic_loss_forward(*geometry, loss=at(loss), x=at(P), label=at(L), workspace=scratch)()
        cpu.logistic_loss_backward(*geometry, dx=at(dx), x=at(P), label=at(L), dloss=at(D))()
        cpu.logistic_loss_backward(*geometry, dx=at(over), x=at(over), label=at(L), dloss=at(D))()
        cpu.logistic_loss_backward(*geometry, dx=at(added), x=at(P), label=at(L), dloss=at(D), accumulate=True)()
        return loss, dx, over, added

    loss, dx, over, added = every_way(make)
    held = np.maximum(p[at_label].astype(np.float64), 1e-20)
    assert abs(loss[0] / -np.log(held).mean() - 1) < 1e-6
    want = np.zeros(p.shape)
    want[at_label] = -3 / items / held
    np.testing.assert_allclose(dx, want, rtol=1e-6)
    assert (over == dx).all()
    np.testing.assert_allclose(added, before + want, rtol=1e-6)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("items, size", [(1, 1), (50, 40), (3, 9000)])
def test_the_contrastive_loss_joins_pairs_and_parts_others(items, size, legacy, unit, every_way):
    a, b = normal(1, items, size), normal(2, items, size)
    same, dloss = np.random.default_rng(3).integers(0, 2, items).astype(np.float32), np.float32([2.0])
    if items > 1:
        b[0], same[0] = a[0], 0  # no distance between what should be apart
    margin = 2.1 * size if legacy else np.sqrt(2.1 * size)
    shape = (items, size)

    def make(memory):
        A, B, S, D, loss = memory.put(a), memory.put(b), memory.put(same), memory.put(dloss), memory.empty(1)
        da, db, own_a, own_b = memory.empty(*shape), memory.put(a), memory.put(a), memory.put(b)
        scratch = memory.scratch(cpu.contrastive_loss_workspace(*shape))
        how = {"same": at(S), "margin": margin, "legacy": legacy}
        cpu.contrastive_loss_forward(
            *shape, loss=at(loss), a=at(A), b=at(B), divisor=2.0 * items, workspace=scratch, **how
        )()
        how |= {"dloss": at(D), "divisor": float(items)}
        cpu.contrastive_loss_backward(*shape, da=at(da), a=at(A), b=at(B), **how)()
        cpu.contrastive_loss_backward(*shape, db=at(db), a=at(A), b=at(B), accumulate_db=True, **how)()
        cpu.contrastive_loss_backward(*shape, da=at(own_b), db=at(own_a), a=at(own_a), b=at(own_b), **how)()
        return loss, da, db, own_a, own_b

    loss, da, db, own_a, own_b = every_way(make)
    d = a.astype(np.float64) - b
    square, alike = (d * d).sum(axis=1), same != 0
    gap = np.maximum(np.float32(margin) - (square if legacy else np.sqrt(square)), 0)
    each = np.where(alike, square, gap if legacy else gap**2)
    assert abs(loss[0] - each.sum() / (2 * items)) <= 2e-6 * max(each.max(), square.max())
    slope = np.where(alike, 1, -np.sign(gap) if legacy else -gap / (np.sqrt(square) + 1e-4))
    want = 2 / items * slope[:, None] * d
    assert np.abs(da - want).max() <= 2e-6 * np.abs(2 / items * d).max()
    assert (db == a - da).all() and (own_b == da).all() and (own_a == -da).all()


def test_a_label_that_is_no_class_is_reported_with_the_range(memory):
    x, label, loss = memory.put(normal(1, 3, 4)), memory.put(np.float32([0, 4, 1])), memory.empty(1)
    scratch = memory.scratch(cpu.item_loss_workspace(3, 4))
    with pytest.raises(ValueError, match=r"label 4 is out of range 0\.\.3"):
        cpu.hinge_loss_forward(3, 4, 4, loss=at(loss), x=at(x), label=at(label), workspace=scratch)()
