"""Update rules of the cpu device, and the norm of all gradients."""

import numpy as np
import pytest

from layermem.backends.cpu.support.launch import launch
from tests.native.numbers import at, close, normal


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
@pytest.mark.parametrize("rule", ["SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam", "AdamW"])
def test_an_update_moves_weights_and_optimizer_state_by_its_rule(rule, decay, l1, isa, every_way):
    count, rate, gain, m, m2, delta = 20003, 0.1, 0.5, 0.9, 0.99, 1e-3
    w, dw, h0, h1 = normal(1, count), normal(2, count), np.abs(normal(3, count)), np.abs(normal(4, count))
    two = rule in ("AdaDelta", "Adam", "AdamW")
    shrink = 0.02 if rule == "AdamW" else 0.0

    def make(memory):
        W, DW, H0, H1 = memory.put(w), memory.put(dw), memory.put(h0), memory.put(h1)
        bound = launch(
            "update",
            count,
            rule=rule,
            w=at(W),
            dw=at(DW),
            h0=at(H0),
            h1=at(H1) if two else 0,
            decay=decay,
            l1=l1,
            momentum=m,
            momentum2=m2,
            delta=delta,
        )
        bound(rate, gain, shrink)
        return W, H0, H1

    got = every_way(make)
    w, dw, h0, h1 = (a.astype(np.float64) for a in (w, dw, h0, h1))
    gradient = gain * dw + decay * (np.sign(w) if l1 else w)
    for a, b in zip(got, updates64(rule, w * (1 - shrink), gradient, h0, h1, rate, m, m2, delta)):
        close(a, b)


def test_the_sum_of_squares_runs_over_all_arrays(isa, every_way):
    arrays = [normal(1, 50001), normal(2, 3), normal(3, 16384) * 10, normal(4, 64 * 16384 + 1)]
    counts = [a.size for a in arrays]

    def make(memory):
        X, out, norm = [memory.put(a) for a in arrays], memory.empty(1), memory.empty(1)
        launch("sum_of_squares", counts, out=at(out), xs=[at(a) for a in X])()
        launch("sum_of_squares", counts, out=at(norm), xs=[at(a) for a in X], root=True)()
        return out, norm

    out, norm = every_way(make)
    want = sum(np.sum(a.astype(np.float64) ** 2) for a in arrays)
    assert abs(out[0] / want - 1) < 1e-6 and abs(norm[0] / np.sqrt(want) - 1) < 1e-6
