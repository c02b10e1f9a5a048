"""Steps whose forward and backward ops alternate, slice by slice, and the strategies on them."""

import pytest

from layermem.backends.reference import ReferenceDevice
from layermem.data import probe
from layermem.graph.net import Net
from layermem.graph.ops import DIFF, FORWARD, Graph
from layermem.graph.slices import Cut, sliced_graph
from layermem.graph.train import UpdateRule, train_graph
from layermem.planning.costs import model_costs
from layermem.planning.hints import Hints
from layermem.planning.lower_sets import group_ops
from layermem.planning.offloading import carried_sums
from layermem.planning.partition_choices import CHOICES
from layermem.planning.phases import forward_first, with_later_slices
from layermem.planning.pipeline import Compiler
from layermem.planning.plan import Decision, ops_in_order
from layermem.planning.strategies import STRATEGIES
from layermem.proto.read import read_net_text
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.schedule.check import check
from tests.nets import CHAIN

DEVICE = ReferenceDevice()


def step(cut: str | None) -> Graph:
    net = Net(read_net_text(CHAIN), 0, probe=probe)

    def make(net: Net) -> Graph:
        return train_graph(net, DEVICE, UpdateRule("SGD", 1))

    return make(net) if cut is None else sliced_graph(net, make, Cut.parse(cut), DEVICE, CHOICES)


def first_layers() -> str:
    """A cut of the layers before the last one with weights."""
    layers = [op.layers[-1] for op in step(None).of_kind(FORWARD) if op.reads and op.layers]
    return f"{layers[0]}..{layers[1]}/2"


def test_only_a_whole_step_in_slices_has_several_phases():
    assert len(step(None).phases) == 1 and len(step(first_layers()).phases) == 1
    assert len(step("whole/2").phases) >= 2
    assert step(None).later_slices == {} == step(first_layers()).later_slices


def test_forward_ops_stay_in_their_phase():
    graph = step("whole/2")
    reverse = list(reversed(graph.of_kind(FORWARD)))
    order = forward_first(graph, reverse)
    assert sorted(order) == sorted(op.name for op in graph.ops)
    ends = {name: i for i, ops in enumerate(graph.phases) for name in (op.name for op in ops)}
    assert [ends[name] for name in order] == sorted(ends[name] for name in order)


def test_later_slices_follow_the_first_one():
    graph = step("whole/2")
    later = graph.later_slices
    assert later and all(name.endswith("@2/2") and model.endswith("@1/2") for name, model in later.items())
    first = [op for op in graph.of_kind(FORWARD) if op.name not in later]
    (segment,) = with_later_slices(graph, [first])
    assert {op.name for op in segment} == {op.name for op in graph.of_kind(FORWARD)}
    assert not {op.name for ops in group_ops(graph) for op in ops} & set(later)


@pytest.mark.parametrize("cut", ["whole/2", "prefix"])
@pytest.mark.parametrize("name", [name for name in STRATEGIES if name != "recompute-exact"])
def test_every_strategy_plans_a_step_in_slices(name, cut):
    graph = step(first_layers() if cut == "prefix" else cut)
    compiler = Compiler(ArenaPlanner([graph], model_costs("reference")), name, Hints())
    smallest = compiler.search.min_memory_program
    for budget_bytes in (None, smallest.arena_bytes):
        program = compiler.compile(budget_bytes)  # checked
        assert budget_bytes is None or program.arena_bytes <= budget_bytes
        assert program.plan.slices == graph.slices
        slices = [op.record.batch_slice for op in ops_in_order(graph, program.plan.order) if op.name.count(".wgrad")]
        assert [p.first for p in slices if p] == sorted(p.first for p in slices if p) or cut == "prefix"


def test_what_slices_carry_leaves_where_activations_and_state_are_not_enough():
    """The sums of gradients are the size of the weights, and each slice needs them for one op."""
    graph = step("whole/2")
    carried = carried_sums(graph)
    assert carried and all(graph.buffers[name].kind == DIFF for name in carried) and not carried_sums(step(None))
    program = Compiler(ArenaPlanner([graph], model_costs("cuda")), "auto").search.min_memory_program
    check(*program.schedules)
    gone = {gap.buffer for gap, decision in program.plan.decisions.items() if decision is Decision.OFFLOAD}
    assert gone & set(carried)
