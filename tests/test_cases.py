"""Every op case on the reference backend: closed forms, gradients, declared roles; and completeness of the cases."""

from __future__ import annotations

import ast
import re
import zlib
from pathlib import Path

import numpy as np
import pytest

from layermem.backends.reference.base import REGISTRY, ReferenceCall
from layermem.layers import LAYERS
from tests.cases import CASES, select
from tests.cases.records import RECORDS
from tests.layers.harness import backward, check_gradients, forward, logical, wants_of
from tests.op_case import OpCase, RecordCase

RUNNABLE = [name for name, case in CASES.items() if {"small", "medium"} & set(case.sizes)]
EXTENTS = {"c", "channels", "columns", "count", "first", "group", "images", "inner", "items", "k", "m", "n", "others"}
EXTENTS |= {"axis", "one", "other", "out", "outputs", "part", "pixels", "problem", "rows", "shape", "size", "width"}
PROBLEMS = ("ConvProblem", "problem_of", "depthwise_problem")
NOT_OF_OPS = Path("tests/layers/test_fillers.py")  # shapes of parameters
PASSES = ("statistics", "gradient_sums", "input_gradient")  # of slices alone: tests/batch_norm_slices.py


def smallest(name: str) -> OpCase:
    """The case, over the fewest elements that it has."""
    case = CASES[name]
    sizes = [each for each in ("small", "medium") if each in case.sizes]
    return case.at(*min((case.shapes(each) for each in sizes), key=lambda shapes: sum(map(np.prod, shapes))))


def drawn(name: str):
    """The layer of a case and its inputs."""
    case = smallest(name)
    layer = case.layer()
    return case, layer, *case.inputs(layer, np.random.default_rng(zlib.crc32(name.encode())))


@pytest.mark.parametrize("size", ["small", "medium"])
@pytest.mark.parametrize("name", [name for name in RUNNABLE if CASES[name].formula is not None])
def test_y_is_the_closed_form_of_x(name, size):
    case = CASES[name]
    layer = case.layer(size)
    xs, ws = case.inputs(layer, np.random.default_rng(3))
    assert case.formula is not None
    np.testing.assert_allclose(forward(layer, *xs, ws=ws).arrays["y0"], case.formula(*xs), rtol=1e-12, atol=1e-15)


@pytest.mark.exhaustive(1)
@pytest.mark.parametrize("name", [name for name in RUNNABLE if CASES[name].derivative])
def test_gradients_are_those_of_central_differences(name):
    case, layer, xs, ws = drawn(name)
    check_gradients(layer, *xs, ws=ws, wants=wants_of(layer), tolerance=case.tolerance)


@pytest.mark.parametrize("name", RUNNABLE)
def test_an_op_reads_only_the_roles_that_it_declares_whatever_gradients_are_wanted(name):
    _, layer, xs, ws = drawn(name)
    every = wants_of(layer)
    for wants in dict.fromkeys([every, *((role,) for role in every)]):
        run = forward(layer, *xs, ws=ws)
        recompute = layer.recompute()
        if recompute is not None and not recompute.updates:
            run.step(recompute)
        backward(run, wants, *(np.ones(top.shape) for top in layer.tops))
        assert set(wants) == {role for role in run.arrays if role.startswith(("dx", "dw"))}


@pytest.mark.parametrize("name", RECORDS)
def test_an_op_without_a_layer_reads_only_the_roles_that_it_declares(name):
    case: RecordCase = RECORDS[name]
    values = case.inputs(np.random.default_rng(4))
    arrays = {role: logical(tensor) for role, tensor in {**case.reads, **case.updates, **case.writes}.items()}
    for role, value in values.items():
        arrays[role][...] = value
    REGISTRY.bind(case.record, case.step, ReferenceCall(arrays, case.context, op=name))
    for role in case.reads:
        np.testing.assert_array_equal(arrays[role], values[role], err_msg=f"changed its input {role}")
    for role in (*case.writes, *case.updates):
        assert np.isfinite(arrays[role]).all() and (role in case.writes or (arrays[role] != values[role]).any())


def test_every_layer_type_has_a_case():
    others = {"Filter", "Python"}  # run by no device; code of users, in layers/test_python.py
    assert {smallest(name).layer().type for name in RUNNABLE} >= set(LAYERS) - others


def test_every_kernel_of_the_reference_has_a_case():
    steps = {f"{type(case.record).__name__}.{case.step}" for case in RECORDS.values()}
    for name in RUNNABLE:
        layer = smallest(name).layer()
        for step in filter(None, (layer.forward(), layer.recompute(), *layer.backward(wants_of(layer)))):
            steps.add(f"{type(step.record or layer.record).__name__}.{step.step}")
    passes = {f"{name}.{step}" for name in ("BatchNorm", "BatchNormScale") for step in PASSES}
    of_ranks = {"ReduceScatter.reduce", "AllGather.gather", "AllGather.collect", "MovingAverage.average"}
    of_ranks |= {"RowSquares.forward", "NormOfRows.forward"}  # tests/graph/test_sharing.py
    of_slices = {*passes, *of_ranks, "InnerProduct.gathered_dgrad"}  # of graphs that no layer alone has
    assert steps == {name for name in REGISTRY.names() if not name.startswith("Python.")} - of_slices


@pytest.mark.parametrize("size", ["timing", "gpu"])
def test_a_case_for_the_clock_is_a_layer(size):
    for case in select(size):
        assert case.layer(size).tops


def is_sizes(node: ast.AST) -> bool:
    """Whether the node is a tuple of whole numbers, or of such tuples: a shape, or several."""
    is_number = isinstance(node, ast.Constant) and type(node.value) is int
    return is_number or (isinstance(node, ast.Tuple) and bool(node.elts) and all(map(is_sizes, node.elts)))


def is_row(node: ast.AST) -> bool:
    """Whether the node is a tuple, or a convolution of some size."""
    return isinstance(node, ast.Tuple) or (isinstance(node, ast.Call) and ast.unparse(node.func) in PROBLEMS)


def sizes_written_in(path: Path) -> list[str]:
    """Where a test lists shapes, or sizes of an op, as a constant or as parameters that say nothing else."""
    tree, found = ast.parse(path.read_text()), []
    assigned = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    constants = {
        ast.unparse(each.targets[0] if isinstance(each, ast.Assign) else each.target): each.value for each in assigned
    }
    for name, value in constants.items():
        listed = isinstance(value, ast.List | ast.Tuple) and len(value.elts) > 1 and not name.startswith("(")
        if listed and all(isinstance(row, ast.Tuple) and is_sizes(row) for row in value.elts):
            found.append(f"{path}:{value.lineno}: {name}")
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.parametrize":
            names = {*re.findall(r"\w+", ast.unparse(call.args[0]))} - {"precision", "settings"}
            listed = [call.args[1]]
            listed += [constants[name] for name in map(ast.unparse, ast.walk(call.args[1])) if name in constants]
            rows = [node for each in listed for node in ast.walk(each) if is_row(node)]
            if rows and names and names <= EXTENTS:
                found.append(f"{path}:{call.lineno}: {', '.join(sorted(names))}")
    return found


def test_shapes_of_ops_are_listed_here_and_not_beside_the_tests_of_kernels():
    """A list that also says what a test expects of each shape belongs to that test."""
    folders = ("backends", "emulator", "layers", "runtime")
    files = [path for name in folders for path in Path("tests", name).rglob("test_*.py")]
    files += Path("tests/native").glob("test_cpu_*.py")
    assert len(files) > 80
    assert not [place for path in files if path != NOT_OF_OPS for place in sizes_written_in(path)]
