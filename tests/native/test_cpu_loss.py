"""Losses of the cpu device against formulas in float64."""

import numpy as np
import pytest

from layermem.backends.cpu.support.launch import launch, query
from tests.cases.base import AXES
from tests.cases.loss import LABELLED, PAIRS
from tests.native.numbers import at, close, normal


@pytest.mark.parametrize("ignore", [None, -1])
@pytest.mark.parametrize("count", [1, 77, 30011])
def test_sigmoid_loss_holds_for_any_score(count, ignore, isa, every_way):
    x, dloss = normal(1, count) * 20, np.float32([2.0])
    t = np.random.default_rng(2).choice(np.float32([0, 1, 0.25, -1]), count)
    how = {"ignore_label": ignore, "divisor": 0}

    def make(memory):
        X, T, D = memory.put(x), memory.put(t), memory.put(dloss)
        loss, dx, over = memory.empty(1), memory.empty(count), memory.put(x)
        workspace = memory.workspace(query("sigmoid_loss_workspace_bytes", count))
        launch("sigmoid_loss_forward", count, loss=at(loss), x=at(X), target=at(T), workspace=workspace, **how)()
        for out, xs in ((dx, X), (over, over)):
            launch(
                "sigmoid_loss_backward",
                count,
                dx=at(out),
                x=at(xs),
                target=at(T),
                dloss=at(D),
                workspace=workspace,
                **how,
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
def test_euclidean_loss_is_half_the_squared_distance(count, isa, every_way):
    a, b, dloss = normal(1, count), normal(2, count), np.float32([3.0])

    def make(memory):
        A, B, D, loss, dx = memory.put(a), memory.put(b), memory.put(dloss), memory.empty(1), memory.empty(count)
        workspace = memory.workspace(query("euclidean_loss_workspace_bytes", count))
        launch("euclidean_loss_forward", count, loss=at(loss), a=at(A), b=at(B), divisor=8.0, workspace=workspace)()
        launch("euclidean_loss_backward", count, da=at(dx), a=at(A), b=at(B), dloss=at(D), divisor=4.0)()
        return loss, dx

    loss, dx = every_way(make)
    d = a.astype(np.float64) - b
    assert abs(loss[0] / ((d * d).sum() / 8) - 1) < 1e-6
    close(dx, 0.75 * d)


def places(label, channels, pixels):
    """The places in rows [pixels][channels] of labels that count [channels][pixels]."""
    return (label % pixels * channels + label // pixels).astype(int)


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("items, channels, pixels", LABELLED)
def test_the_hinge_loss_pushes_labels_up_and_others_down(items, channels, pixels, squared, isa, every_way):
    classes = channels * pixels
    x, before, dloss = normal(1, items, classes), normal(2, items, classes), np.float32([2.0])
    label = np.random.default_rng(3).integers(0, classes, items).astype(np.float32)
    geometry = (items, classes, channels)

    def make(memory):
        X, L, D, loss = memory.put(x), memory.put(label), memory.put(dloss), memory.empty(1)
        dx, over, added = memory.empty(items, classes), memory.put(x), memory.put(before)
        workspace = memory.workspace(query("item_loss_workspace_bytes", items, classes))
        launch(
            "hinge_loss_forward", *geometry, loss=at(loss), x=at(X), label=at(L), squared=squared, workspace=workspace
        )()
        how = {"label": at(L), "dloss": at(D), "squared": squared}
        launch("hinge_loss_backward", *geometry, dx=at(dx), x=at(X), **how)()
        launch("hinge_loss_backward", *geometry, dx=at(over), x=at(over), **how)()
        launch("hinge_loss_backward", *geometry, dx=at(added), x=at(X), accumulate=True, **how)()
        return loss, dx, over, added

    loss, dx, over, added = every_way(make)
    sign = np.ones((items, classes))
    sign[np.arange(items), places(label, channels, pixels)] = -1
    hinge = np.maximum(0, 1 + sign * x.astype(np.float64))
    assert abs(loss[0] / ((hinge**2 if squared else hinge).sum() / items) - 1) < 1e-6
    close(dx, 2 / items * sign * (2 * hinge if squared else hinge > 0), 1e-6)
    assert (over == dx).all() and (added == before + dx).all()


def test_the_logistic_loss_stops_at_the_smallest_probability(isa, every_way):
    items, channels, pixels = 30, 4, 6
    p = np.random.default_rng(1).random((items, channels * pixels)).astype(np.float32)
    label = np.random.default_rng(2).integers(0, channels * pixels, items).astype(np.float32)
    at_label = (np.arange(items), places(label, channels, pixels))
    p[at_label[0][:2], at_label[1][:2]] = 0, -1
    before, dloss, geometry = normal(3, *p.shape), np.float32([3.0]), (items, channels * pixels, channels)

    def make(memory):
        P, L, D, loss = memory.put(p), memory.put(label), memory.put(dloss), memory.empty(1)
        dx, over, added = memory.empty(*p.shape), memory.put(p), memory.put(before)
        workspace = memory.workspace(query("item_loss_workspace_bytes", items, channels * pixels))
        launch("logistic_loss_forward", *geometry, loss=at(loss), x=at(P), label=at(L), workspace=workspace)()
        launch("logistic_loss_backward", *geometry, dx=at(dx), x=at(P), label=at(L), dloss=at(D))()
        launch("logistic_loss_backward", *geometry, dx=at(over), x=at(over), label=at(L), dloss=at(D))()
        launch("logistic_loss_backward", *geometry, dx=at(added), x=at(P), label=at(L), dloss=at(D), accumulate=True)()
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
@pytest.mark.parametrize("items, size", PAIRS)
def test_the_contrastive_loss_joins_pairs_and_parts_others(items, size, legacy, isa, every_way):
    a, b = normal(1, items, size), normal(2, items, size)
    same, dloss = np.random.default_rng(3).integers(0, 2, items).astype(np.float32), np.float32([2.0])
    if items > 1:
        b[0], same[0] = a[0], 0  # no distance between what should be apart
    margin = 2.1 * size if legacy else np.sqrt(2.1 * size)
    shape = (items, size)

    def make(memory):
        A, B, S, D, loss = memory.put(a), memory.put(b), memory.put(same), memory.put(dloss), memory.empty(1)
        da, db, own_a, own_b = memory.empty(*shape), memory.put(a), memory.put(a), memory.put(b)
        workspace = memory.workspace(query("contrastive_loss_workspace_bytes", *shape))
        how = {"same": at(S), "margin": margin, "legacy": legacy}
        launch(
            "contrastive_loss_forward",
            *shape,
            loss=at(loss),
            a=at(A),
            b=at(B),
            divisor=2.0 * items,
            workspace=workspace,
            **how,
        )()
        how |= {"dloss": at(D), "divisor": float(items)}
        launch("contrastive_loss_backward", *shape, da=at(da), a=at(A), b=at(B), **how)()
        launch("contrastive_loss_backward", *shape, db=at(db), a=at(A), b=at(B), accumulate_db=True, **how)()
        launch("contrastive_loss_backward", *shape, da=at(own_b), db=at(own_a), a=at(own_a), b=at(own_b), **how)()
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
    workspace = memory.workspace(query("item_loss_workspace_bytes", 3, 4))
    with pytest.raises(ValueError, match="reads label 4, but has scores for 4 classes: 0 to 3"):
        launch("hinge_loss_forward", 3, 4, 4, loss=at(loss), x=at(x), label=at(label), workspace=workspace)()


@pytest.mark.parametrize("ignore", [None, 1])
@pytest.mark.parametrize("shape", AXES)
def test_the_infogain_loss_counts_every_class_as_the_row_of_the_label_says(shape, ignore, isa, every_way):
    s, (outer, classes, inner) = shape, shape
    rng, before = np.random.default_rng(3), normal(2, *shape)
    p, matrix = rng.random(shape, np.float32), rng.random((classes, classes), np.float32)
    p /= p.sum(axis=1, keepdims=True)
    p[0, -1] = 0
    label = rng.integers(0, classes, (outer, inner)).astype(np.float32)

    def make(memory):
        P, M, L, D = memory.put(p), memory.put(matrix), memory.put(label), memory.put(np.float32([0.5]))
        loss, dx, own, added = memory.empty(1), memory.empty(*shape), memory.put(p), memory.put(before)
        workspace = memory.workspace(query("infogain_loss_workspace_bytes", s))
        how = {"label": at(L), "matrix": at(M), "ignore_label": ignore, "divisor": 0, "workspace": workspace}
        launch("infogain_loss_forward", s, loss=at(loss), p=at(P), **how)()
        for out, shares, add in ((dx, P, False), (own, own, False), (added, P, True)):
            launch("infogain_loss_backward", s, dx=at(out), p=at(shares), dloss=at(D), accumulate=add, **how)()
        return loss, dx, own, added

    loss, dx, own, added = every_way(make)
    valid = np.ones_like(label) if ignore is None else label != ignore
    rows = np.moveaxis(matrix.astype(np.float64)[label.astype(int)], 2, 1)
    by = max(valid.sum(), 1)
    close(loss[0], -((rows * np.log(np.maximum(p.astype(np.float64), 1e-20))).sum(axis=1) * valid).sum() / by)
    gradient = 0.5 / by * (p * rows.sum(axis=1, keepdims=True) - rows) * valid[:, None]
    assert np.abs(dx - gradient).max() <= 2e-6 * 0.5 / by * max(1, np.abs(rows.sum(axis=1)).max())
    assert (own == dx).all() and (added == before + dx).all()
