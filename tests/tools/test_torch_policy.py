"""A training graph as a graph file, its plan as a policy; with PyTorch, where it is installed, peaks and gradients."""

import subprocess
import sys
from pathlib import Path

import pytest

from layermem.integrations.graph_files.planner import GraphPlanner
from layermem.integrations.graph_files.text_format import format_graph, parse_graph
from tools.torch_policy import Op, Saved, Traced, kept_values

ROOT = Path(__file__).resolve().parents[2]
MM, RELU, MUL = "aten.mm.default", "aten.relu.default", "aten.mul.Tensor"


def chain(length: int, *, numbered: bool) -> Traced:
    """x -> mm -> relu -> mm -> relu ..., 100 bytes a value; as AOTAutograd writes it, backward behind forward."""
    sources = [("x", 100, False), *((f"w{i}", 10, True) for i in range(length))]
    forward, backward, value = [], [], "x"
    for i in range(length):
        number = {"sequence": 2 * i} if numbered else {}
        forward.append(Op(MM, (value, f"w{i}"), ((f"a{i}", 100),), **number))
        backward.append(Op(MM, ("dy", value), ((f"dw{i}", 10),), True, number.get("sequence", -1)))
        backward.append(Op(MM, ("dy", f"w{i}"), ((f"d{value}", 100),), True, number.get("sequence", -1)))
        number = {"sequence": 2 * i + 1} if numbered else {}
        forward.append(Op(RELU, (f"a{i}",), ((f"y{i}", 100),), **number))
        backward.append(
            Op("aten.threshold_backward.default", ("dy", f"y{i}"), ((f"da{i}", 100),), True, number.get("sequence", -1))
        )
        value = f"y{i}"
    return Traced(sources, [*forward, *reversed(backward)])


def test_a_training_graph_is_a_graph_file_that_can_be_read_again():
    graph = chain(2, numbered=True).graph_file()
    assert parse_graph(format_graph(graph)) == parse_graph(format_graph(parse_graph(format_graph(graph))))
    assert [v.name for v in graph.variables] == ["0", "/w0", "/w1", "_", "_", "_", "_"]
    assert [f.type_name for f in graph.forward] == [f"Conv_{MM}", RELU] * 2
    assert [f.cost for f in graph.forward] == [10, 1, 10, 1]
    first, relu = graph.backward[:2]
    assert first.reads == ((3, "gradient"), (0, "input"), (1, "input")) and first.writes == (0, 1)
    assert relu.reads == ((4, "gradient"), (4, "output"))


def test_operands_of_a_backward_are_found_by_numbers_or_by_values():
    assert chain(3, numbered=True).saved_by_op() == [{"x", "w0"}, {"y0"}, {"y0", "w1"}, {"y1"}, {"y1", "w2"}, {"y2"}]
    by_values = chain(3, numbered=False).saved_by_op()  # y0 may be of the relu, or of the product that reads it
    assert set().union(*by_values) == {"x", "w0", "y0", "w1", "y1", "w2", "y2"}


def test_values_of_several_ops_go_to_those_that_make_them():
    traced = Traced(
        [("x", 8, False)],
        [
            Op(RELU, ("x",), (("a", 8),)),
            Op(RELU, ("a",), (("b", 8),)),
            Op(RELU, ("b",), (("c", 8),)),
            Op(MUL, ("a", "c", "dy"), (("d", 8),), True),
        ],
    )
    assert traced.saved_by_op() == [{"a"}, set(), {"c"}]


def test_a_plan_becomes_the_numbers_of_the_calls_that_are_saved():
    traced = chain(6, numbered=True)
    graph = traced.graph_file()
    plan = GraphPlanner(graph).plan()
    kept = kept_values(graph, plan)
    ids = traced.ids
    assert kept and kept < {ids[f"{kind}{i}"] for kind in "ay" for i in range(6)}
    saved = Saved.of(traced, kept)
    for i in range(6):
        assert saved.has(MM, i) == (ids[f"a{i}"] in kept) and saved.has(RELU, i) == (ids[f"y{i}"] in kept)
    assert not saved.has(MUL, 0) and not saved.has(MM, 6)


def test_without_torch_the_extra_is_named(tmp_path):
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('no torch')")
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.path.insert(1, {str(ROOT)!r})\n"
            "from tools.torch_policy import main; sys.argv = ['torch_policy']; sys.exit(main())",
        ],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 2 and "pip install 'layermem[bench]'" in ended.stderr


MODEL = """
import torch
from torch import nn

def small():
    torch.manual_seed(0)
    stages, channels = [], 3
    for _ in range(4):
        layers = [nn.Conv2d(channels, 8, 3, padding=1), nn.SiLU(), nn.Conv2d(8, 8, 3, padding=1), nn.SiLU()]
        stages.append(nn.Sequential(*layers))
        channels = 8
    return stages, torch.randn(4, 3, 16, 16)
"""


def test_a_policy_lowers_the_peak_and_keeps_the_gradients(tmp_path):
    torch = pytest.importorskip("torch")
    from tools.torch_policy import load_model, step, trace

    (tmp_path / "model.py").write_text(MODEL)
    stages, x = load_model(f"{tmp_path / 'model.py'}:small")
    traced = trace(stages, x)
    assert len(traced.forward) == 18 and all(op.sequence >= 0 for op in traced.forward if "conv" in op.target)
    graph = traced.graph_file()
    saved = Saved.of(traced, kept_values(graph, GraphPlanner(graph).plan()))
    peak, gradients = step(stages, x, None)
    less, again = step(stages, x, saved)
    assert less < 0.8 * peak and all(torch.equal(a, b) for a, b in zip(gradients, again))
