"""Reduction, ArgMax and Accuracy of the cpu device against formulas in float64."""

import numpy as np
import pytest

from layermem.backends.cpu.support.launch import launch, query
from tests.cases.base import AXES
from tests.cases.loss import LARGEST, REDUCED
from tests.native.numbers import at, close, normal

TERMS = {"plain": (lambda x: x, np.ones_like), "absolute": (np.abs, np.sign), "square": (np.square, lambda x: 2 * x)}


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("shape", REDUCED)
def test_a_reduction_sums_along_its_axis_and_spreads_the_gradient(shape, term, isa, every_way):
    s, (outer, _, inner) = shape, shape
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
        workspace = memory.workspace(query("reduce_workspace_bytes", s))
        launch("reduce", s, term, y=at(y), x=at(X), factor=0.5, workspace=workspace)()
        launch("reduce", s, term, y=at(more), x=at(X), factor=0.5, accumulate=True, workspace=workspace)()
        launch("reduce_backward", s, term, dx=at(dx), x=at(X), dy=at(DY), factor=0.5)()
        launch("reduce_backward", s, term, dx=at(over), x=at(over), dy=at(DY), factor=0.5)()
        launch("reduce_backward", s, term, dx=at(added), x=at(X), dy=at(DY), factor=0.5, accumulate=True)()
        return y, more, dx, over, added

    y, more, dx, over, added = every_way(make)
    value, slope = TERMS[term]
    x = x.astype(np.float64)
    terms = 0.5 * value(x)
    assert np.abs(y - terms.sum(axis=1)).max() <= 3e-7 * np.abs(terms).sum(axis=1).max()
    assert (more == y0 + y).all()
    close(dx, 0.5 * dy[:, None] * slope(x), 1e-6)
    assert (over == dx).all() and (added == dx0 + dx).all()


@pytest.mark.parametrize("rows, size, count, inner", LARGEST)
def test_the_largest_come_first_and_of_equals_the_last(rows, size, count, inner, isa, every_way):
    x = np.round(normal(1, rows, size) * 3)  # many equals
    x[0, -1] = np.nan

    def make(memory):
        X, place, value = memory.put(x), memory.empty(rows * count), memory.empty(rows * count)
        workspace = memory.workspace(query("top_k_workspace_bytes", count))
        launch(
            "top_k",
            rows=rows,
            size=size,
            k=count,
            index=at(place),
            value=at(value),
            x=at(X),
            inner=inner,
            workspace=workspace,
        )()
        return place, value

    place, value = every_way(make)
    order = np.argsort(x, axis=1, kind="stable")[:, ::-1][:, :count]

    def found(a):  # [rows / inner][count][inner]
        return a.reshape(rows // inner, inner, count).transpose(0, 2, 1).reshape(-1)

    np.testing.assert_array_equal(place, found(order))
    np.testing.assert_array_equal(value, found(np.take_along_axis(x, order, 1)))


@pytest.mark.parametrize("ignore", [None, 1])
@pytest.mark.parametrize("top_k", [1, 3])
@pytest.mark.parametrize("shape", [axis for axis in AXES if axis[1] > 2])
def test_accuracy_counts_labels_among_the_best_and_ties_as_misses(shape, top_k, ignore, isa, every_way):
    s, (outer, classes, inner) = shape, shape
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
        launch(
            "accuracy",
            s,
            y=at(share),
            by_class=at(classed),
            workspace=memory.workspace(query("accuracy_workspace_bytes", s, True)),
            **how,
        )()
        launch("accuracy", s, y=at(alone), workspace=memory.workspace(query("accuracy_workspace_bytes", s)), **how)()
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
