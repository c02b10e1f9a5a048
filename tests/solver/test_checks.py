"""Solvers that no training can use: each is refused with the line and a remedy."""

import pytest

from layermem.errors import InputError
from layermem.interactive.solver import Solver
from layermem.solver.checks import check_solver
from tests.nets import solver_file, solver_text


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"lr_policy": "linear"}, "has the unknown lr_policy 'linear' .choose from fixed, step, exp"),
        ({"lr_policy": None}, "has no lr_policy .choose from fixed"),
        ({"base_lr": None}, "has lr_policy 'fixed' without 'base_lr'; add it"),
        ({"lr_policy": "step", "gamma": 0.1}, "has lr_policy 'step' without 'stepsize'; add it"),
        ({"lr_policy": "step", "gamma": 0.1, "stepsize": 0}, "has stepsize 0; use 1 or more"),
        ({"lr_policy": "multistep", "gamma": 0.1}, "without 'stepvalue'; add it"),
        ({"lr_policy": "multistep", "gamma": 0.1, "stepvalue": [5, 3]}, "has stepvalues out of order; sort them"),
        ({"lr_policy": "poly", "power": 1, "max_iter": None}, "has lr_policy 'poly' without 'max_iter'; add it"),
        ({"base_lr": "nan"}, "has base_lr nan; use a finite number"),
        ({"base_lr": "-inf"}, "has base_lr -inf; use a finite number"),
        ({"base_lr": 1e39}, "has base_lr inf; use a finite number of at most 3.4e.38"),
        ({"base_lr": -0.1}, "has base_lr -0.1; use 0 or more"),
        ({"momentum": "nan"}, "has momentum nan; use a finite number"),
        ({"momentum": 1}, "has momentum 1; use 0 or more, and less than 1"),
        ({"momentum": -0.5, "type": "Nesterov"}, "has momentum -0.5; use 0 or more, and less than 1"),
        ({"momentum": 1, "type": "Adam"}, "has momentum 1; use 0 or more, and less than 1"),
        ({"momentum2": 2, "type": "Adam"}, "has momentum2 2; use 0 or more, and less than 1"),
        ({"momentum2": 1e38, "type": "Adam"}, "has momentum2 1e.38; use 0 or more, and less than 1"),
        ({"momentum": 1, "type": "AdaDelta"}, "has momentum 1; use 0 or more, and less than 1"),
        ({"momentum2": 1, "type": "AdamW"}, "has momentum2 1; use 0 or more, and less than 1"),
        ({"delta": 0, "type": "AdamW"}, "has delta 0; use a small positive number such as 1e-8"),
        ({"regularization_type": "L1", "type": "AdamW"}, "'L1' with type 'AdamW'; use L2, or type 'Adam'"),
        ({"warmup_iter": -1}, "has warmup_iter -1; use 0 or more"),
        ({"warmup_iter": 2, "warmup_start_lr": "inf"}, "has warmup_start_lr inf; use a finite number"),
        ({"warmup_iter": 2, "warmup_start_lr": -1}, "has warmup_start_lr -1; use 0 or more"),
        ({"lr_policy": "cosine", "max_iter": 0}, "has lr_policy 'cosine' with max_iter 0; use 1 or more"),
        ({"delta": 0, "type": "Adam"}, "has delta 0; use a small positive number such as 1e-8"),
        ({"delta": -1, "type": "AdaGrad"}, "has delta -1; use a small positive number"),
        ({"weight_decay": "inf"}, "has weight_decay inf; use a finite number"),
        ({"weight_decay": -1}, "has weight_decay -1; use 0 or more"),
        ({"clip_gradients": "nan"}, "has clip_gradients nan; use a finite number"),
        ({"lr_policy": "step", "stepsize": 1, "gamma": "nan"}, "has gamma nan; use a finite number"),
        (
            {"lr_policy": "step", "stepsize": 1, "gamma": 1e38, "max_iter": 10},
            "iteration 9 .* rate of inf; lower gamma",
        ),
        ({"lr_policy": "exp", "gamma": 1e38, "max_iter": 3}, "gives iteration 2 a learning rate of .*; lower gamma"),
        ({"lr_policy": "exp", "gamma": -1}, "has lr_policy 'exp' with gamma -1; use 0 or more"),
        ({"lr_policy": "multistep", "stepvalue": [1, 2], "gamma": 1e38}, "learning rate of .*; lower gamma"),
        ({"lr_policy": "multistep", "stepvalue": [-1, 2], "gamma": 1}, "has stepvalue -1; use 0 or more"),
        ({"lr_policy": "inv", "gamma": -2, "power": 0.75}, "has lr_policy 'inv' with gamma -2; use 0 or more"),
        ({"lr_policy": "inv", "gamma": 1e38, "power": -9, "max_iter": 9}, "learning rate of .*; lower gamma"),
        ({"lr_policy": "poly", "power": -1}, "has lr_policy 'poly' with power -1; use 0 or more"),
        ({"lr_policy": "poly", "power": 1, "max_iter": 0}, "has lr_policy 'poly' with max_iter 0; use 1 or more"),
        ({"type": "Adagrad"}, "has the unknown type 'Adagrad' .choose from SGD, Nesterov, AdaGrad"),
        ({"type": "AdaGrad", "momentum": 0.9}, "which AdaGrad does not use"),
        ({"type": "RMSProp", "rms_decay": 1}, "has rms_decay 1"),
        ({"regularization_type": "L3"}, "use L1 or L2"),
        ({"iter_size": 0}, "has iter_size 0; use 1 or more"),
        ({"display": -1}, "has display -1; use 0 or more"),
    ],
)
def test_a_solver_that_cannot_be_run_is_refused_with_its_file(fields, said, tmp_path):
    with pytest.raises(InputError, match=said) as caught:
        check_solver(solver_file("chain", tmp_path, **fields))
    assert str(caught.value).startswith(f"{tmp_path}/solver.prototxt")


def test_a_number_outside_its_domain_is_refused_with_its_line(tmp_path):
    file = solver_file("chain", tmp_path, stepvalue=[1, 2, -3])
    with pytest.raises(InputError) as caught:
        check_solver(solver_file("chain", tmp_path, base_lr="nan"))
    assert str(caught.value).startswith(f"{tmp_path}/solver.prototxt:1: has base_lr nan")
    with pytest.raises(InputError) as caught:
        check_solver(file)
    lines = [index for index, line in enumerate(solver_text(stepvalue=[1, 2, -3]).splitlines(), 1) if "-3" in line]
    assert str(caught.value).startswith(f"{tmp_path}/solver.prototxt:{lines[0]}: has stepvalue -3")


def test_rates_are_checked_up_to_the_last_iteration_of_the_run(tmp_path):
    file = solver_file("chain", tmp_path, lr_policy="exp", gamma=1e30, max_iter=1)
    with pytest.raises(InputError, match="gives iteration 4 a learning rate"):
        Solver(file, device="reference", iterations=5)
