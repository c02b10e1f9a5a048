"""Softmax and its loss on the cpu device against formulas in float64."""

import re

import numpy as np
import pytest

from layermem.backends.cpu.support.launch import launch, query
from tests.cases.base import AXES
from tests.native.numbers import at, normal

LARGEST_LOSS = -np.log(np.finfo(np.float32).tiny.astype(np.float64))  # of one label, as in Caffe


def softmax64(x, axis=1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@pytest.mark.parametrize("shape", AXES)
def test_softmax_and_its_backward(shape, isa, every_way):
    s, x, dy, before = shape, normal(1, *shape) * 5, normal(2, *shape), normal(3, *shape)

    def make(memory):
        X, DY, y, own = memory.put(x), memory.put(dy), memory.empty(*shape), memory.put(x)
        dx, over, added = memory.empty(*shape), memory.put(dy), memory.put(before)
        launch("softmax_forward", s, y=at(y), x=at(X))()
        launch("softmax_forward", s, y=at(own), x=at(own))()
        launch("softmax_backward", s, dx=at(dx), y=at(y), dy=at(DY))()
        launch("softmax_backward", s, dx=at(over), y=at(y), dy=at(over))()
        launch("softmax_backward", s, dx=at(added), y=at(y), dy=at(DY), accumulate=True)()
        return y, own, dx, over, added

    y, own, dx, over, added = every_way(make)
    p = softmax64(x.astype(np.float64))
    assert np.abs(y - p).max() < 1e-6
    assert np.abs(dx - p * (dy - (p * dy).sum(axis=1, keepdims=True))).max() < 3e-6
    assert (own == y).all() and (over == dx).all() and (added == before + dx).all()


@pytest.mark.parametrize("ignore", [None, 1])
@pytest.mark.parametrize("divisor", [0, 6.0])
@pytest.mark.parametrize("shape", AXES)
def test_softmax_loss_is_the_mean_of_minus_log_of_the_labels_share(shape, divisor, ignore, isa, every_way):
    s, (outer, classes, inner) = shape, shape
    x, before, dloss = normal(1, *shape) * 5, normal(2, *shape), np.float32([0.5])
    x[0] *= 40  # shares that round to nothing
    label = np.random.default_rng(3).integers(0, classes, (outer, inner)).astype(np.float32)
    how = {"ignore_label": ignore, "divisor": divisor}

    def make(memory):
        X, L, D = memory.put(x), memory.put(label), memory.put(dloss)
        loss, alone, y, own = memory.empty(1), memory.empty(1), memory.empty(*shape), memory.put(x)
        dx, over, added = memory.empty(*shape), memory.put(x), memory.put(before)
        workspace = memory.workspace(query("softmax_loss_workspace_bytes", s))
        launch("softmax_loss_forward", s, loss=at(loss), y=at(y), x=at(X), label=at(L), workspace=workspace, **how)()
        launch("softmax_loss_forward", s, loss=at(alone), x=at(X), label=at(L), workspace=workspace, **how)()
        launch(
            "softmax_loss_forward", s, loss=at(alone), y=at(own), x=at(own), label=at(L), workspace=workspace, **how
        )()
        for out, xs, add in ((dx, X, False), (over, over, False), (added, X, True)):
            launch(
                "softmax_loss_backward",
                s,
                dx=at(out),
                x=at(xs),
                label=at(L),
                dloss=at(D),
                accumulate=add,
                workspace=workspace,
                **how,
            )()
        return loss, alone, y, own, dx, over, added

    loss, alone, y, own, dx, over, added = every_way(make)
    x = x.astype(np.float64)
    hot = label[:, None] == np.arange(classes)[None, :, None]
    valid = np.ones_like(label) if ignore is None else label != ignore
    shifted = x - x.max(axis=1, keepdims=True)
    each = np.minimum(np.log(np.exp(shifted).sum(axis=1)) - (shifted * hot).sum(axis=1), LARGEST_LOSS)
    assert (each == LARGEST_LOSS).any() or classes == 1
    by = divisor or max(valid.sum(), 1)
    want = (each * valid).sum() / by
    assert abs(loss[0] - want) <= 2e-6 * max(abs(want), 1) and alone == loss
    assert np.abs(y - softmax64(x)).max() < 1e-6
    gradient = 0.5 / by * (softmax64(x) - hot) * valid[:, None]
    assert np.abs(dx - gradient).max() <= 1e-6 * 0.5 / by
    assert (own == y).all() and (over == dx).all() and np.allclose(added, before + dx, atol=1e-6)


def test_a_label_that_is_no_class_is_reported(memory):
    x, label, loss = memory.put(normal(1, 3, 4)), memory.put(np.float32([0, 4, 1])), memory.empty(1)
    s = (3, 4, 1)
    workspace = memory.workspace(query("softmax_loss_workspace_bytes", s))
    with pytest.raises(ValueError, match="reads label 4, but has scores for 4 classes: 0 to 3"):
        launch("softmax_loss_forward", s, loss=at(loss), x=at(x), label=at(label), divisor=0, workspace=workspace)()


@pytest.mark.parametrize("bad", ["nan", "inf", "-inf", "1.00000002e+30", "-1.5", "4.25", "16777216"])
def test_a_label_that_is_no_class_is_reported_as_it_is(memory, bad, isa):
    x, label, loss = memory.put(normal(1, 3, 4)), memory.put(np.float32([0, float(bad), 1])), memory.empty(1)
    s = (3, 4, 1)
    workspace = memory.workspace(query("softmax_loss_workspace_bytes", s))
    with pytest.raises(ValueError, match=f"reads label {re.escape(bad)}, but has scores for 4 classes"):
        launch("softmax_loss_forward", s, loss=at(loss), x=at(x), label=at(label), divisor=0, workspace=workspace)()
