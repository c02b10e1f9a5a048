"""Filter: its largest tops, the operands of backward, and refusals, including the refusal to run it."""

import pytest

from layermem.errors import InputError
from layermem.interactive.solver import Solver
from layermem.layers.base import make_layer
from layermem.ops import Tensor
from layermem.planning.strategies import STRATEGIES
from layermem.proto.schema import LayerParameter
from tests.nets import DATA, LOSS, conv, solver_file

NET = f"""
    {DATA} {conv("stem", "data", 4, 3)}
    layer {{ name: "pick" type: "DummyData" top: "pick" dummy_data_param {{ shape {{ dim: 4 }} }} }}
    layer {{ name: "some" type: "Filter" bottom: "stem" bottom: "label" bottom: "pick" top: "some" top: "labels" }}
    {LOSS.replace('"label"', '"labels"') % "some"}
"""


def filter_of(tops, *shapes):
    bottoms = [f"x{i}" for i in range(len(shapes))]
    return make_layer(
        LayerParameter(name="it", type="Filter", bottom=bottoms, top=tops), 0, [Tensor(s) for s in shapes]
    )


def test_its_tops_are_planned_with_all_items():
    it = filter_of(["a", "b"], (5, 3, 2, 2), (5,), (5, 1, 1, 1))
    assert [top.shape for top in it.tops] == [(5, 3, 2, 2), (5,)]


def test_backward_reads_the_selector_and_the_gradients_and_gives_the_selector_none():
    it = filter_of(["a", "b"], (5, 3), (5, 2), (5,))
    assert [(s.reads, s.writes) for s in it.backward(("dx1", "dx2"))] == [(("x2", "dy1"), ("dx1",))]
    assert it.backward(("dx2",)) == () and it.stash == {}


@pytest.mark.parametrize(
    "tops, shapes, remedy",
    [
        (["a"], [(5, 3), (5, 2), (5,)], "give one top for each bottom but the last"),
        (["a"], [(5, 3), (5, 2)], "give one number for each item"),
        (["a"], [(5, 3), (4,)], "make the batch sizes equal"),
        (["a"], [(5, 3)], "has 1 bottom; Filter takes at least 2"),
    ],
)
def test_an_impossible_filter_is_refused_with_a_remedy(tops, shapes, remedy):
    with pytest.raises(InputError, match=remedy):
        filter_of(tops, *shapes)


@pytest.mark.parametrize("strategy", ["liveness", "recompute", "auto"])
def test_to_run_it_is_refused_before_the_first_step_with_line_layer_and_remedy(strategy, tmp_path):
    assert strategy in STRATEGIES
    with pytest.raises(InputError, match=r"layer 'some' has tops whose batch size depends on the data.*ignore_label"):
        Solver(solver_file(NET, tmp_path), device="reference", strategy=strategy)
