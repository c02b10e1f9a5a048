"""The public names and their arguments."""

import inspect
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import layermem
from layermem import caffe
from layermem.report.plan_report import PlanReport
from layermem.schedule.program import Program

NET = "prototxt/mnist/train_val.prototxt"


def test_the_public_names():
    assert layermem.__all__ == [
        "BudgetError", "Classifier", "Detector", "DeviceError", "InputError", "L", "LayermemError", "Net", "NetSpec",
        "P", "PythonLayer", "Solver", "caffe", "compare", "compile", "deploy", "fit", "io", "plan", "to_proto",
    ]  # fmt: skip
    assert set(layermem.__all__) <= set(dir(layermem))


@pytest.mark.parametrize("name", layermem.__all__)
def test_every_public_name_is_there(name):
    assert getattr(layermem, name).__doc__


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
    code = "import layermem.planning.plan, layermem.planning.pipeline\nimport layermem\n"
    code += f"print(layermem.plan({NET!r}).peak_bytes)\n"
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
        "LeNet (digits) train",
        "LeNet (digits) test",
    ]


@pytest.mark.parametrize("arguments", [{}, {"net": NET, "solver": "prototxt/digits/solver.prototxt"}])
def test_a_plan_is_made_for_a_net_or_for_a_solver(arguments):
    with pytest.raises(layermem.InputError, match="give a net or a solver, and not both"):
        layermem.plan(**arguments)


def test_a_net_is_built_in_the_phase_that_is_asked_for():
    assert layermem.Net(NET, "TEST", batch=3).blobs["data"].shape == (3, 1, 28, 28)
    with pytest.raises(layermem.InputError, match="unknown phase 'trained'"):
        layermem.Net(NET, "trained")


BUDGETS = [(2e6, 2_000_000), (2**59 + 1, 2**59 + 1), (np.int64(2_000_000), 2_000_000), ("2MB", 2_000_000)]


@pytest.mark.parametrize(("budget", "nbytes"), [*BUDGETS, ("4GiB", 2**32), (None, None)])
def test_a_budget_is_a_number_of_bytes_or_a_text(budget, nbytes):
    report = layermem.plan("prototxt/digits/train_val.prototxt", budget=budget)
    assert report.budget_bytes == nbytes and (nbytes is None or type(report.budget_bytes) is int)
    half = layermem.plan("prototxt/digits/train_val.prototxt", budget="50%")
    assert half.budget_bytes == half.job.baseline_bytes // 2


@pytest.mark.parametrize(
    ("budget", "says"),
    [
        (0.5, "0.5 is not a number of bytes; for a share of the baseline use '50%'"),
        (1.5, "1.5 is not an amount of memory"),
        (-1, "-1 is not an amount"),
        (float("nan"), "nan is not an amount"),
        (float("inf"), "inf is not an amount"),
        (True, "True is not an amount"),
        ([1], r"\[1\] is not an amount"),
        (1e30, "more memory than any machine has"),
        (1j, "1j is not an amount"),
        ("half", "'half' is not an amount"),
    ],
)
@pytest.mark.parametrize("argument", ["budget", "host_budget"])
def test_an_invalid_budget_is_refused_in_a_sentence(argument, budget, says):
    with pytest.raises(layermem.InputError, match=says):
        if argument == "budget":
            layermem.plan("prototxt/digits/train_val.prototxt", budget=budget)
        else:
            layermem.Solver("prototxt/digits/solver.prototxt", host_budget=budget)


@pytest.mark.parametrize("path", [0, 123, 1.5, b"net.prototxt", ["a"]])
def test_an_invalid_path_is_refused_in_a_sentence(path):
    calls = (layermem.Net, layermem.Solver, layermem.plan, lambda path: layermem.plan(solver=path))
    for call in calls:
        with pytest.raises(layermem.InputError, match="is no path of a prototxt"):
            call(path)
    with pytest.raises(layermem.InputError, match=r"costs cannot be .*; it takes a path or a Costs"):
        layermem.plan(NET, costs=path)
    with pytest.raises(layermem.InputError, match="is no path of a saved plan"):
        layermem.plan(NET, saved=path)


DIGITS, SOLVER = "prototxt/digits/train_val.prototxt", "prototxt/digits/solver.prototxt"
NET_ARGUMENTS = {
    "batch": "4", "level": "1", "stages": "abc", "inputs": {"data": 3}, "allow_python": "no", "device": 3,
    "seed": 1.5, "keep": [3], "weights": 3, "strategy": 3, "phase": 7, "budget": [],
}  # fmt: skip
STEP_ARGUMENTS = {
    "batch": 1.5, "ranks": "2", "iter_size": "2", "slices": 3, "split_weights": 3, "hints": 3, "costs": 3,
    "spill": "a\0", "device": 3, "strategy": 3, "saved": b"a", "budget": [], "host_budget": [], "allow_python": 1,
}  # fmt: skip
SOLVER_ARGUMENTS = {
    "batch": "4", "device": 3, "keep": 3, "weights": 3, "seed": "1", "iterations": 2.5, "loss_scale": [], "data": 3,
    "snapshot": 3, "budget_file": "a\0", "log": 3, "transport": 3, "plan": 3, "measure": 3, "restart": "no", "timed": 1,
}  # fmt: skip
FUNCTIONS = {
    "Net": (lambda **given: layermem.Net(DIGITS, **given).forward(), NET_ARGUMENTS),
    "caffe.Net": (lambda **given: caffe.Net(DIGITS, caffe.TEST, **given).forward(), {"batch": "4", "level": "1"}),
    "plan": (lambda **given: layermem.plan(DIGITS, **given), STEP_ARGUMENTS),
    "compare": (lambda **given: layermem.compare(DIGITS, **given), {"strategies": "auto", "batch": "4"}),
    "fit": (lambda **given: layermem.fit(DIGITS, "1MiB", **given), {"most": "3", "strategies": [3]}),
    "deploy": (lambda **given: layermem.deploy(DIGITS, **given), {"batch": "4", "stages": 3, "inputs": 3}),
    "Solver": (lambda **given: layermem.Solver(SOLVER, **given), SOLVER_ARGUMENTS),
}


@pytest.mark.parametrize(
    "function, name", [(function, name) for function, (_, wrong) in FUNCTIONS.items() for name in wrong]
)
def test_an_argument_of_a_wrong_type_is_refused_in_a_sentence(function, name):
    call, wrong = FUNCTIONS[function]
    with pytest.raises(layermem.InputError) as caught:
        call(**{name: wrong[name]})
    assert len(caught.value.lines) == 1 and (";" in str(caught.value) or "choose from" in str(caught.value))


@pytest.fixture(scope="module")
def made():
    """What the calls below are of, by name."""
    with layermem.Net(DIGITS) as net, layermem.Solver(SOLVER) as solver:
        yield {"net": net, "solver": solver, "caffe": caffe}


WRONG_CALLS = {
    "net.save": (("a\0b.caffemodel",), (b"x.caffemodel",), (3,)),
    "net.load": ((3,), ("a\0b",), (b"x",)),
    "net.share_with": ((3,), (None,)),
    "net.forward": (("ip2",), (3,), (None, 3)),
    "net.backward": (("ip2",), (3,), (None, 3)),
    "net.forward_all": (("ip2",), (3,)),
    "net.from_text": ((b"name: 'a'",), (None,)),
    "solver.from_text": ((b"net: 'a'",), (None,)),
    "solver.step": (("3",), (2.0,), (None,)),
    "solver.test": (("0",), (0.0,), (7,)),
    "solver.set_base_lr": (("0.1",), (None,)),
    "solver.request": (("foo",), (3,)),
    "solver.restore": ((3,), ("a\0b",)),
    "solver.load": ((3,), ("a\0b",)),
    "solver.add_callback": ((3,),),
    "solver.set_parameters": ((3,), ({"ip2": 3},)),
    "solver.net.forward": (("ip2",),),
    "caffe.set_random_seed": (("1",), (1.5,)),
    "caffe.set_device": (("0",), (None,)),
    "caffe.log": ((3,),),
}


@pytest.mark.parametrize("call, wrong", [(call, each) for call, several in WRONG_CALLS.items() for each in several])
def test_a_wrong_argument_of_a_method_is_refused_in_a_sentence(call, wrong, made):
    owner, _, name = call.rpartition(".")
    with pytest.raises(layermem.InputError) as caught:
        getattr(eval(owner, made), name)(*wrong)
    assert len(caught.value.lines) == 1 and (";" in str(caught.value) or "choose from" in str(caught.value))


@pytest.mark.parametrize("name", ["base_lr", "rate"])
def test_a_wrong_learning_rate_is_refused_in_a_sentence(name, made):
    with pytest.raises(TypeError, match=r"cannot be '0\.1'; it takes a number"):
        setattr(made["solver"], name, "0.1")


def test_a_test_net_that_is_not_there_takes_no_arrays(made):
    for index, says in (("0", "it takes a whole number"), (7, "has no test net 7; use an index below 1")):
        with pytest.raises(layermem.InputError, match=says):
            made["solver"].give(test=index, data=np.ones(3))


def test_numbers_of_numpy_and_paths_are_arguments_like_any(tmp_path):
    weights = tmp_path / "weights.npz"
    layermem.Net(DIGITS, batch=np.int64(4), level=np.int8(0), allow_python=np.bool_(False), seed=np.uint8(1)).save(
        weights
    )
    options = {"batch": np.int32(8), "iter_size": np.int16(2), "iterations": np.int64(3), "seed": np.int64(1)}
    with layermem.Solver(SOLVER, weights=weights, **options) as solver:
        solver.step(np.uint8(2))
        solver.set_base_lr(np.float32(0.5))
        solver.test(np.int64(0))
        assert solver.iteration == 2 and solver.base_lr == 0.5


def test_objects_print_themselves_in_a_line():
    report = layermem.plan(NET)
    numbers = "peak [\\d.]+ MiB, [\\d.]+ ms per step>"
    assert re.fullmatch(f"<PlanReport: LeNet x64, strategy liveness, {numbers}", repr(report))
    assert "over the budget of 1.00 MiB" in repr(layermem.plan(NET, budget="1MiB"))
    program, graph = report.program, report.job.graphs[0]
    assert repr(program.train) == (
        f"<Schedule: LeNet train, strategy liveness, 29 instructions, peak {report.peak_bytes:,} bytes>"
    )
    assert repr(graph).startswith("<Graph: LeNet train on cpu, ") and "LeNet x64" in repr(report.job)
    assert all(len(repr(each)) < 200 for each in (report, report.job, program, program.train, graph))


def test_signatures_are_those_that_work():
    for function in (layermem.plan, layermem.compile, layermem.Net, layermem.Solver):
        kinds = {parameter.kind for parameter in inspect.signature(function).parameters.values()}
        assert not kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


def test_means_and_batches_are_as_the_docstrings_say():
    with layermem.Solver("prototxt/digits/solver.prototxt") as solver:
        assert {str(value.dtype) for value in solver.test().values()} == {"float64"}
    assert "float64" in layermem.Solver.test.__doc__ and "whole batches" in layermem.Solver.give.__doc__


@pytest.mark.parametrize("chosen", ["cpp", "", "upb2"])
def test_an_implementation_of_protobuf_that_is_not_there_is_ignored_with_a_word(chosen):
    variables = {**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": chosen}
    command = [sys.executable, "-m", "layermem", "show", "--net", NET]
    ended = subprocess.run(command, capture_output=True, text=True, env=variables)
    assert ended.returncode == 0 and "LeNet" in ended.stdout
    [said] = ended.stderr.splitlines()
    assert f"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION={chosen} is not there" in said and "unset it" in said


def test_strategies_are_compared_in_one_call_as_by_the_command():
    reports = layermem.compare(NET, budget="60%", device="cpu", batch=8)
    assert [each.feasible for each in reports] == sorted((each.feasible for each in reports), reverse=True)
    fitting = [each for each in reports if each.feasible]
    assert [each.seconds for each in fitting] == sorted(each.seconds for each in fitting)
    chosen = layermem.compare(NET, strategies=["auto", "sublinear"], budget="60%", device="cpu", batch=8)
    alone = layermem.plan(NET, strategy="sublinear", budget="60%", device="cpu", batch=8)
    (found,) = (each for each in chosen if each.strategy == "sublinear")
    assert len(chosen) == 2 and (found.seconds, found.peak_bytes) == (alone.seconds, alone.peak_bytes)
    with pytest.raises(layermem.InputError, match="unknown strategy"):
        layermem.compare(NET, strategies=["fastest"], device="cpu")


def test_the_largest_batch_is_found_in_one_call_as_by_the_command():
    fits = layermem.fit(NET, "16MiB", strategies=["liveness", "caffe"], device="cpu")
    assert [each.size for each in fits] == sorted((each.size for each in fits), reverse=True) and fits[-1].size > 0
    for each in fits:
        for batch, fitting in ((each.size, True), (each.size + 1, False)):
            plan = layermem.plan(NET, strategy=each.strategy, budget="16MiB", device="cpu", batch=batch)
            assert plan.feasible is fitting
    assert fits[0].items_per_second == pytest.approx(fits[0].size / fits[0].report.seconds)
    (alone,) = layermem.fit(NET, 16 << 20, strategies=["liveness"], device="cpu", most=1)
    (sliced,) = layermem.fit(NET, 16 << 20, strategies=["liveness"], slices="whole/4", split_weights="ip1/2")
    assert sliced.size % 4 == 0 and str(sliced.report.slices) == "whole/4,ip1/rows/2"
    assert alone.size == 1
    for budget in (None, "50%"):
        with pytest.raises(layermem.InputError, match="fit needs an amount of memory"):
            layermem.fit(NET, budget, device="cpu")
