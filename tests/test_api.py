"""The public names."""

import inspect
import subprocess
import sys

import pytest

import layermem
from layermem.report.plan_report import PlanReport
from layermem.schedule.program import Program

NET = "prototxt/mnist/train_val.prototxt"


def test_the_public_names():
    assert layermem.__all__ == [
        "BudgetError", "DeviceError", "InputError", "LayermemError", "Net", "Solver", "compile", "plan",
    ]  # fmt: skip
    assert set(layermem.__all__) <= set(dir(layermem))


@pytest.mark.parametrize("name", layermem.__all__)
def test_every_public_name_is_there(name):
    assert callable(getattr(layermem, name))


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'toaster'"):
        layermem.toaster  # noqa: B018


def test_importing_layermem_imports_nothing_heavy():
    code = "import sys, layermem; print(*sorted(m for m in sys.modules if m.split('.')[0] in "
    code += "('numpy', 'google', 'h5py', 'lmdb', 'rich', 'pycuda', 'matplotlib', 'plotly')))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_plan_and_compile_are_functions_with_signatures_and_docstrings():
    for function in (layermem.plan, layermem.compile):
        assert inspect.isfunction(function) and function.__doc__
        assert {"net", "solver", "strategy", "budget"} <= set(inspect.signature(function).parameters)


def test_public_functions_are_the_same_whatever_is_imported_first():
    code = (
        f"import layermem.planning.plan, layermem.compiler\nimport layermem\nprint(layermem.plan({NET!r}).peak_bytes)\n"
    )
    code += f"print(layermem.compile({NET!r}).arena_bytes)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    peak, arena = map(int, result.stdout.split())
    assert peak == arena > 0


def test_plan_answers_and_compile_refuses_a_budget_that_is_too_small():
    found = layermem.plan(NET, budget="1MiB")
    assert isinstance(found, PlanReport) and not found.feasible
    with pytest.raises(layermem.BudgetError, match=r"budget 1.00 MiB is below the minimum of 'auto'"):
        layermem.compile(NET, budget="1MiB")


def test_compile_gives_the_schedules_of_all_nets_of_a_solver():
    program = layermem.compile(solver="prototxt/digits/solver.prototxt")
    assert isinstance(program, Program) and [s.graph.name for s in program.schedules] == [
        "LeNet (digits) train", "LeNet (digits) test",
    ]  # fmt: skip


@pytest.mark.parametrize("arguments", [{}, {"net": NET, "solver": "prototxt/digits/solver.prototxt"}])
def test_a_plan_is_made_for_a_net_or_for_a_solver(arguments):
    with pytest.raises(layermem.InputError, match="give a net or a solver, and not both"):
        layermem.plan(**arguments)


def test_a_net_is_built_in_the_phase_that_is_asked_for():
    assert layermem.Net(NET, "TEST", batch=3).blobs["data"].shape == (3, 1, 28, 28)
    with pytest.raises(layermem.InputError, match="unknown phase 'train'"):
        layermem.Net(NET, "train")
