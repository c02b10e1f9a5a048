"""Parameters without a gradient: each update rule applies decay and momentum to them."""

import numpy as np
import pytest

from layermem.backends.base import get_device
from layermem.backends.reference import ReferenceDevice
from layermem.errors import BudgetError
from layermem.interactive.solver import Solver
from tests.nets import DATA, LOSS, solver_file
from tests.solver.test_rules import KINDS, TYPES, VARIANTS, RuleOracle

HEAD = f"""{DATA} layer {{ name: "zero" type: "DummyData" top: "zero" dummy_data_param {{ shape {{ dim: 4 }} }} }}"""
LAYER = """
    layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" param { lr_mult: %s decay_mult: 1 }
            param { lr_mult: 2 decay_mult: 0.5 }
            inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
"""
BRANCH_ENDS = {
    "propagate_down": """
        layer { name: "above" type: "InnerProduct" bottom: "ip" top: "above" propagate_down: false
                inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
        layer { name: "other" type: "SoftmaxWithLoss" bottom: "above" bottom: "zero" top: "other" }""",
    "Silence": 'layer { name: "silence" type: "Silence" bottom: "ip" }',
    "nothing": "",
    "loss_weight 0": 'layer { name: "l" type: "SoftmaxWithLoss" bottom: "ip" bottom: "zero" top: "l" loss_weight: 0 }',
    "a loss": 'layer { name: "l" type: "SoftmaxWithLoss" bottom: "ip" bottom: "zero" top: "l" }',
}


def net(end: str, weight: float = 1) -> str:
    """`ip`, whose weights have this lr_mult, below one of BRANCH_ENDS, and a layer that learns."""
    return f"{HEAD} {LAYER % weight} {BRANCH_ENDS[end]} {LOSS % 'data'}"


@pytest.mark.exhaustive(16)
@pytest.mark.parametrize("end", [end for end in BRANCH_ENDS if end != "a loss"])
@pytest.mark.parametrize(("kind", "variant"), KINDS)
def test_a_parameter_that_no_gradient_reaches_moves_as_the_formulas_say_of_a_gradient_of_zero(
    kind, variant, end, tmp_path
):
    fields = {"test_iter": None, "test_interval": None, "type": kind, **TYPES[kind], **VARIANTS[variant]}
    if TYPES[kind]["momentum"] is None:
        fields["momentum"] = None
    file = solver_file(net(end), tmp_path, **fields)
    values = [np.array([[0.5, -1.0] * 45, [2.0, 0.25] * 45]), np.array([1.0, -0.5])]
    oracle = RuleOracle(file.message)
    with Solver(file, device=ReferenceDevice("float64"), poison=True) as solver:
        solver.set_parameters({"ip": values})
        for iteration in range(4):
            values = oracle.step(values, [np.zeros_like(value) for value in values], iteration)
            solver.step(1)
            for found, value in zip(solver.parameters()["ip"], values, strict=True):
                np.testing.assert_allclose(found, value, rtol=1e-10, atol=1e-12)
        assert solver.runner.measured_peak_bytes == solver.program.arena_bytes


def test_weights_of_one_are_0_95_after_a_step_of_rate_0_1_with_decay_0_5(tmp_path):
    """The weights are 0.95 in BVLC Caffe too."""
    file = solver_file(net("Silence"), tmp_path, base_lr=0.1, weight_decay=0.5, momentum=0)
    with Solver(file, device="cpu") as solver:
        solver.set_parameters({"ip": [np.ones((2, 90)), np.ones(2)]})
        solver.step(1)
        weights, bias = solver.parameters()["ip"]
    assert np.allclose(weights, 0.95) and np.allclose(bias, 1 - 0.1 * 2 * 0.5 * 0.5)


def resumed(folder, weight: float, notes: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The weights of `ip` after two steps with a gradient, and after two more without one and without decay."""
    fields = {"snapshot_after_train": True, "max_iter": 2, "momentum": 0.5, "weight_decay": 0}
    with Solver(solver_file(net("a loss"), folder, **fields), device="cpu") as solver:
        solver.solve()
        before = solver.parameters()["ip"][0]
    other = solver_file(net("Silence", weight), folder, **fields)
    snapshot = folder / "run_iter_2.solverstate"
    with Solver(other, device="cpu", snapshot=snapshot, log=lambda event: notes.append(str(event))) as solver:
        solver.step(2)
        return before, solver.parameters()["ip"][0]


def test_momentum_of_a_snapshot_moves_what_no_gradient_reaches(tmp_path):
    before, after = resumed(tmp_path, 1, notes := [])
    assert np.abs(after - before).max() > 1e-4 and not any("lr_mult 0 freezes" in note for note in notes)


def test_momentum_of_a_snapshot_does_not_move_what_lr_mult_0_freezes_and_a_note_says_so(tmp_path):
    before, after = resumed(tmp_path, 0, notes := [])
    np.testing.assert_array_equal(before, after)
    (note,) = [note for note in notes if "lr_mult 0 freezes" in note]
    assert "ip.w0" in note and "ip.w1" not in note


@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("fields", [{}, {"clip_gradients": 0.1, "iter_size": 2}], ids=["plain", "clipped and held"])
@pytest.mark.parametrize(
    ("storage", "options"),
    [
        ("fp32", {"slices": "whole/2"}),
        ("fp16", {"slices": "whole/2"}),
        ("fp32", {"slices": "..mixed/2"}),
        ("fp32", {"split_weights": "judge/2"}),
        ("fp32", {"slices": "whole/2", "split_weights": "judge/2"}),
        ("fp16", {"strategy": "recompute", "budget": "minimum"}),
        ("fp32", {"strategy": "hybrid", "budget": "minimum"}),
    ],
    ids=str,
)
def test_no_plan_changes_a_bit_of_parameters_that_no_gradient_reaches(options, storage, fields, tmp_path):
    def trained(**options) -> list[np.ndarray]:
        file = solver_file("unreached", tmp_path, test_iter=None, test_interval=None, **fields)
        device = get_device("cpu", storage=storage)
        if options.get("budget") == "minimum":
            options["budget"] = least_bytes(file, device, options["strategy"])
        with Solver(file, device=device, poison=True, host_budget="1TiB", **options) as solver:
            solver.step(3)
            assert solver.runner.measured_peak_bytes == solver.program.arena_bytes
            return [value for values in solver.parameters().values() for value in values]

    for found, value in zip(trained(**options), trained(strategy="caffe"), strict=True):
        np.testing.assert_array_equal(found, value)


def least_bytes(file, device, strategy: str) -> int:
    with pytest.raises(BudgetError) as caught:
        Solver(file, device=device, strategy=strategy, budget=1, host_budget="1TiB")
    return caught.value.minimum_bytes
