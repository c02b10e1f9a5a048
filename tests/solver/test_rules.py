"""Learning rates by hand, and every update rule against linear least squares, whose gradient is a formula."""

import math

import numpy as np
import pytest

from layermem.backends.reference import ReferenceDevice
from layermem.interactive.solver import Solver
from layermem.solver.checks import check_solver
from layermem.solver.rules import defaulted, learning_rate, rate_drop, rate_drops
from tests.nets import solver_file

# ---- learning rates ------------------------------------------------------------------------------------------------

BY_HAND = [
    ({"lr_policy": "fixed"}, {0: 0.5, 1000: 0.5}),
    ({"lr_policy": "step", "gamma": 0.25, "stepsize": 10}, {0: 0.5, 9: 0.5, 10: 0.125, 29: 0.03125}),
    ({"lr_policy": "exp", "gamma": 0.5}, {0: 0.5, 1: 0.25, 3: 0.0625}),
    ({"lr_policy": "inv", "gamma": 0.5, "power": 2}, {0: 0.5, 2: 0.125, 6: 0.03125}),
    ({"lr_policy": "multistep", "gamma": 0.5, "stepvalue": [3, 5]}, {2: 0.5, 3: 0.25, 4: 0.25, 5: 0.125, 99: 0.125}),
    ({"lr_policy": "multistep", "gamma": 0.5, "stepvalue": [0, 0, 5, 5]}, {0: 0.25, 1: 0.125, 5: 0.0625, 6: 0.03125}),
    ({"lr_policy": "step", "stepsize": 10}, {0: 0.5, 9: 0.5, 10: 0.0}),
    ({"lr_policy": "exp"}, {0: 0.5, 1: 0.0}),
    ({"lr_policy": "inv"}, {0: 0.5, 9: 0.5}),
    ({"lr_policy": "poly", "max_iter": 8}, {0: 0.5, 7: 0.5}),
    ({"lr_policy": "inv", "gamma": 0.5, "power": -1}, {0: 0.5, 2: 1.0}),
    ({"lr_policy": "poly", "power": 2, "max_iter": 8}, {0: 0.5, 4: 0.125, 6: 0.03125, 8: 0.0, 9: 0.0}),
    ({"lr_policy": "cosine", "max_iter": 8}, {0: 0.5, 2: 0.25 + 0.25 * math.sqrt(0.5), 4: 0.25, 8: 0.0, 99: 0.0}),
    ({"lr_policy": "fixed", "warmup_iter": 4}, {0: 0.0, 1: 0.125, 3: 0.375, 4: 0.5, 9: 0.5}),
    ({"lr_policy": "fixed", "warmup_iter": 4, "warmup_start_lr": 0.25}, {0: 0.25, 2: 0.375, 4: 0.5}),
    (
        {"lr_policy": "step", "gamma": 0.5, "stepsize": 3, "warmup_iter": 5, "warmup_start_lr": 1.5},
        {0: 1.5, 4: 0.7, 5: 0.25, 6: 0.125},
    ),
    ({"lr_policy": "cosine", "max_iter": 8, "warmup_iter": 2}, {0: 0.0, 1: 0.25, 4: 0.25, 8: 0.0}),
    ({"lr_policy": "sigmoid", "gamma": -1, "stepsize": 4}, {4: 0.25, 0: 0.5 / (1 + math.exp(-4)), 100000: 0.0}),
]


@pytest.mark.parametrize(("fields", "rates"), BY_HAND, ids=[f["lr_policy"] for f, _ in BY_HAND])
def test_a_policy_gives_the_rates_of_its_formula(fields, rates, tmp_path):
    file = solver_file("chain", tmp_path, base_lr=0.5, **fields)
    check_solver(file)
    for iteration, value in rates.items():
        assert learning_rate(file.message, iteration) == pytest.approx(value, rel=1e-15), iteration


def test_the_drops_of_step_and_multistep_are_what_caffe_calls_the_current_step(tmp_path):
    steps = solver_file("chain", tmp_path, lr_policy="step", gamma=0.1, stepsize=7).message
    many = solver_file("chain", tmp_path, lr_policy="multistep", gamma=0.1, stepvalue=[2, 9]).message
    assert [rate_drops(steps, i) for i in (0, 6, 7, 20)] == [0, 0, 1, 2]
    assert [rate_drops(many, i) for i in (0, 2, 8, 9)] == [0, 1, 1, 2]


def test_equal_stepvalues_drop_one_after_the_other_as_in_caffe(tmp_path):
    twice = solver_file("chain", tmp_path, lr_policy="multistep", gamma=0.1, stepvalue=[2, 2, 3, 7]).message
    assert [rate_drops(twice, i) for i in range(9)] == [0, 0, 1, 2, 3, 3, 3, 4, 4]
    assert [rate_drop(twice, i) for i in range(9)] == [0, 0, 1, 2, 3, 0, 0, 4, 0]
    steps = solver_file("chain", tmp_path, lr_policy="step", gamma=0.1, stepsize=2).message
    assert not any(rate_drop(steps, i) for i in range(9))


def test_a_number_of_the_policy_that_is_left_out_is_noted(tmp_path):
    file = solver_file("chain", tmp_path, lr_policy="step", stepsize=10)
    assert defaulted(file.message) == ["lr_policy 'step' without gamma: gamma is 0, as in Caffe"]
    assert not defaulted(solver_file("chain", tmp_path, lr_policy="step", stepsize=10, gamma=0.1).message)


# ---- update rules --------------------------------------------------------------------------------------------------

ROWS, INPUTS, OUTPUTS = 4, 3, 2
LINEAR = f"""
    layer {{ name: "x" type: "Input" top: "x" input_param {{ shape {{ dim: {ROWS} dim: {INPUTS} }} }} }}
    layer {{ name: "t" type: "Input" top: "t" input_param {{ shape {{ dim: {ROWS} dim: {OUTPUTS} }} }} }}
    layer {{ name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param {{ num_output: {OUTPUTS} }}
             param {{ lr_mult: 1 decay_mult: 1 }} param {{ lr_mult: 2 decay_mult: 0.5 }} }}
    layer {{ name: "loss" type: "EuclideanLoss" bottom: "y" bottom: "t" top: "loss" }}
"""


def least_squares(w, b, x, t):
    """Gradients of |x w^T + b - t|^2 / 2 N: (X^T (X w - t)) / N."""
    error = x @ w.T + b - t
    return error.T @ x / len(x), error.sum(axis=0) / len(x)


class RuleOracle:
    """Caffe's rules once more, written for one parameter at a time from the formulas of the papers."""

    def __init__(self, p):
        self.p = p
        self.h = [[0.0, 0.0], [0.0, 0.0]]  # history of weight and bias

    def step(self, values, gradients, iteration):
        p = self.p
        norm = math.sqrt(sum(float((g**2).sum()) for g in gradients))
        clip = p.clip_gradients / norm if 0 <= p.clip_gradients < norm else 1.0
        out = []
        for value, g, h, lr_mult, decay_mult in zip(values, gradients, self.h, (1, 2), (1, 0.5)):
            g = g * clip / p.iter_size
            lr, decay = learning_rate(p, iteration) * lr_mult, p.weight_decay * decay_mult
            if p.type == "AdamW":
                out.append((1 - lr * decay) * value - self.Adam(h, g, lr, iteration))
                continue
            g = g + decay * (value if p.regularization_type == "L2" else np.sign(value))
            out.append(value - getattr(self, p.type)(h, g, lr, iteration))
        return out

    def SGD(self, h, g, lr, i):
        h[0] = self.p.momentum * h[0] + lr * g
        return h[0]

    def Nesterov(self, h, g, lr, i):
        before, h[0] = h[0], self.p.momentum * h[0] + lr * g
        return (1 + self.p.momentum) * h[0] - self.p.momentum * before

    def AdaGrad(self, h, g, lr, i):
        h[0] = h[0] + g**2
        return lr * g / (np.sqrt(h[0]) + self.p.delta)

    def RMSProp(self, h, g, lr, i):
        h[0] = self.p.rms_decay * h[0] + (1 - self.p.rms_decay) * g**2
        return lr * g / (np.sqrt(h[0]) + self.p.delta)

    def AdaDelta(self, h, g, lr, i):
        rho = self.p.momentum
        h[0] = rho * h[0] + (1 - rho) * g**2
        step = g * np.sqrt(h[1] + self.p.delta) / np.sqrt(h[0] + self.p.delta)
        h[1] = rho * h[1] + (1 - rho) * step**2
        return lr * step

    def Adam(self, h, g, lr, i):
        a, b = self.p.momentum, self.p.momentum2
        h[0] = a * h[0] + (1 - a) * g
        h[1] = b * h[1] + (1 - b) * g**2
        return lr * math.sqrt(1 - b ** (i + 1)) / (1 - a ** (i + 1)) * h[0] / (np.sqrt(h[1]) + self.p.delta)


TYPES = {
    "SGD": {"momentum": 0.9},
    "Nesterov": {"momentum": 0.9},
    "AdaGrad": {"momentum": None},
    "RMSProp": {"momentum": None, "rms_decay": 0.95},
    "AdaDelta": {"momentum": 0.95, "delta": 1e-5, "base_lr": 1},
    "Adam": {"momentum": 0.9, "momentum2": 0.99},
    "AdamW": {"momentum": 0.9, "momentum2": 0.99},
}
VARIANTS = {
    "plain": {"momentum": 0, "weight_decay": 0},
    "its momentum": {"weight_decay": 0},
    "L2": {"weight_decay": 0.1},
    "L1": {"weight_decay": 0.1, "regularization_type": "L1"},
    "falling rate": {"lr_policy": "inv", "gamma": 0.5, "power": 0.75},
    "iter_size": {"iter_size": 3},
    "clip": {"clip_gradients": 0.4},
    "warm-up": {"warmup_iter": 3, "warmup_start_lr": 0.01, "lr_policy": "cosine", "max_iter": 9, "weight_decay": 0.1},
    "all": {"weight_decay": 0.1, "iter_size": 2, "clip_gradients": 0.4, "lr_policy": "exp", "gamma": 0.9},
}
KINDS = [(kind, each) for kind in TYPES for each in VARIANTS if (kind, each) != ("AdamW", "L1")]  # which is refused


@pytest.mark.parametrize(("kind", "variant"), KINDS)
def test_least_squares_moves_as_the_formulas_say(kind, variant, tmp_path):
    fields = {"test_iter": None, "test_interval": None, "type": kind, **TYPES[kind], **VARIANTS[variant]}
    if TYPES[kind]["momentum"] is None:
        fields["momentum"] = None
    file = solver_file(LINEAR, tmp_path, **fields)
    size = file.message.iter_size
    rng = np.random.default_rng(3)
    x = rng.integers(-8, 9, (2 * size * ROWS, INPUTS)) / 4  # two iterations' rows: every other one sees the same
    t = rng.integers(-8, 9, (2 * size * ROWS, OUTPUTS)) / 4
    w, b = rng.standard_normal((OUTPUTS, INPUTS)), rng.standard_normal(OUTPUTS)
    oracle = RuleOracle(file.message)
    with Solver(file, device=ReferenceDevice("float64"), poison=True) as solver:
        solver.give("x", x)
        solver.give("t", t)
        solver.set_parameters({"ip": [w, b]})
        for iteration in range(5):
            begin = iteration % 2 * size * ROWS
            parts = [
                least_squares(w, b, x[at : at + ROWS], t[at : at + ROWS])
                for at in range(begin, begin + size * ROWS, ROWS)
            ]
            w, b = oracle.step([w, b], [sum(p) for p in zip(*parts)], iteration)
            solver.step(1)
            (found_w, found_b) = solver.parameters()["ip"]
            np.testing.assert_allclose(found_w, w, rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(found_b, b, rtol=1e-10, atol=1e-12)


def test_gradient_descent_reaches_the_solution_of_the_normal_equations(tmp_path):
    rng = np.random.default_rng(1)
    x, t = rng.integers(-8, 9, (ROWS, INPUTS)) / 4, rng.integers(-8, 9, (ROWS, OUTPUTS)) / 4
    fields = {"test_iter": None, "test_interval": None, "momentum": 0.5, "weight_decay": 0.25, "base_lr": 0.25}
    with Solver(solver_file(LINEAR, tmp_path, **fields), device=ReferenceDevice("float64")) as solver:
        solver.give("x", x)
        solver.give("t", t)
        solver.step(400)
        w, b = solver.parameters()["ip"]
    ones = np.hstack([x, np.ones((ROWS, 1))])
    ridge = 0.25 * np.diag([1, 1, 1, 0.5])
    expected = np.linalg.solve(ones.T @ ones / ROWS + ridge, ones.T @ t / ROWS)
    np.testing.assert_allclose(np.vstack([w.T, b]), expected, rtol=1e-9, atol=1e-12)
