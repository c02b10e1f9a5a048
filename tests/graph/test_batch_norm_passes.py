"""BatchNorm in two passes: the ops that it becomes, their nodes, and the stages of slices."""

from dataclasses import replace

import pytest

from layermem.backends.reference import ReferenceDevice
from layermem.data import probe
from layermem.graph.batch_norm_passes import in_two_passes, needs_two_passes
from layermem.graph.net import Net
from layermem.graph.ops import BACKWARD, FORWARD, UPDATE
from layermem.graph.slices import Cut, sliced_graph
from layermem.graph.train import UpdateRule, train_graph
from layermem.planning.partition_choices import CHOICES
from layermem.planning.plan import Plan, saved_slices
from layermem.proto.read import read_net_text
from layermem.schedule.check import violations
from layermem.schedule.text import parse, text
from tests.compiling import compile
from tests.graph.test_slices import mirrors_forward
from tests.nets import DATA, LOSS, RESIDUAL, conv, norm, relu

MOMENTUM = UpdateRule("SGD", 1)
CHAIN = f"""
    {DATA} {conv("conv1", "data", 4, 3)} {norm("conv1")} {relu("conv1")} {conv("conv2", "conv1", 6, 3)}
    layer {{ name: "bn2" type: "BatchNorm" bottom: "conv2" top: "bn2" }}
    layer {{ name: "pool" type: "Pooling" bottom: "bn2" top: "pool" pooling_param {{ kernel_size: 2 stride: 2 }} }}
    {LOSS % "pool"}
"""
FIRST = "conv1_bn+conv1_scale+conv1_relu"


def net_of(source: str = CHAIN) -> Net:
    return Net(read_net_text(source), 0, probe=probe)


def graph_of(source: str = CHAIN, **options: object):
    return train_graph(net_of(source), ReferenceDevice(), MOMENTUM, **options)


def sliced(cut: str, source: str = CHAIN, **options: object):
    device = ReferenceDevice()
    return sliced_graph(
        net_of(source), lambda net: train_graph(net, device, MOMENTUM, **options), Cut.parse(cut), device, CHOICES
    )


def names(ops) -> list[str]:
    return [op.name for op in ops]


def test_a_batch_norm_is_two_ops_forward_and_two_backward():
    whole = graph_of()
    graph = in_two_passes(whole, range(100), ReferenceDevice())
    statistics, forward = graph.by_name[f"{FIRST}.statistics"], graph.by_name[f"{FIRST}.forward"]
    assert statistics.reads == ("conv1",) and statistics.writes == (f"{FIRST}.mean", f"{FIRST}.inv_std")
    assert statistics.updates == whole.by_name[f"{FIRST}.forward"].updates and statistics.recompute is None
    assert forward.step == "recompute" and not forward.updates and forward.recompute.writes == forward.writes
    sums, gradient = graph.by_name[f"{FIRST}.gradient_sums"], graph.by_name[f"{FIRST}.backward"]
    assert set(sums.writes) == {f"{FIRST}.backward.sums", "conv1_scale.w0.diff", "conv1_scale.w1.diff"}
    assert f"{FIRST}.backward.sums" in gradient.reads and gradient.writes == ("conv1.diff",)
    assert gradient.overlays == whole.by_name[f"{FIRST}.backward"].overlays and not sums.overlays


def test_backward_mirrors_the_two_runs_of_forward():
    graph = in_two_passes(graph_of(), range(100), ReferenceDevice())
    assert mirrors_forward(graph)
    statistics, gradient = graph.by_name["bn2.statistics"], graph.by_name["bn2.backward"]
    assert statistics.node_run == gradient.node_run
    forward, sums = graph.by_name["bn2.forward"], graph.by_name["bn2.gradient_sums"]
    assert forward.node_run == sums.node_run != statistics.node_run and forward.node == statistics.node


def test_only_the_batch_norms_of_a_range_are_divided():
    whole = graph_of()
    node = whole.by_name["bn2.forward"].node
    graph = in_two_passes(whole, range(node, node + 1), ReferenceDevice())
    assert needs_two_passes(graph.by_name[f"{FIRST}.forward"]) and "bn2.statistics" in graph.by_name
    assert in_two_passes(whole, range(2), ReferenceDevice()) is whole


def test_a_batch_norm_of_averages_stays_one_op():
    source = CHAIN.replace('type: "BatchNorm"', 'type: "BatchNorm" batch_norm_param { use_global_stats: true }')
    graph = graph_of(source)
    assert in_two_passes(graph, range(100), ReferenceDevice()) is graph


def test_what_follows_a_residual_is_with_the_pass_that_it_runs_beside():
    """The sum with another blob has a gradient of its own, which reads dy as well."""

    class Fusing(ReferenceDevice):
        fusions = frozenset({"BatchNormScale", "BatchNormScale+residual+relu"})

    whole = train_graph(net_of(RESIDUAL), Fusing(), MOMENTUM)
    graph = in_two_passes(whole, range(100), Fusing())
    layer = next(op.layer_name for op in graph.ops if op.step == "relu_backward")
    ops = [graph.by_name[f"{layer}.{step}"] for step in ("relu_backward", "gradient_sums")]
    assert [op.node_run for op in ops] == [graph.by_name[f"{layer}.forward"].node_run] * 2
    later = [graph.by_name[f"{layer}.{step}"] for step in ("backward", "residual_backward")]
    assert [op.node_run for op in later] == [graph.by_name[f"{layer}.statistics"].node_run] * 2
    assert mirrors_forward(graph)


def test_slices_run_stage_by_stage_and_all_in_rising_order():
    graph = sliced("..bn2/2")
    forward = [name for name in names(graph.of_kind(FORWARD)) if "@" in name]
    first = [f"{name}@{i}/2" for i in (1, 2) for name in ("conv1.forward", f"{FIRST}.statistics")]
    assert forward[:4] == first and forward[-2:] == ["bn2.forward@1/2", "bn2.forward@2/2"]
    backward = [name for name in names(graph.of_kind(BACKWARD)) if "@" in name]
    assert backward[:2] == ["bn2.gradient_sums@1/2", "bn2.gradient_sums@2/2"]
    assert backward[-4:] == [f"{name}@{i}/2" for i in (1, 2) for name in (f"{FIRST}.backward", "conv1.wgrad")]


def test_statistics_are_carried_once_and_the_last_slice_makes_all_results():
    graph = sliced("..bn2/4")
    slices = [graph.by_name[f"{FIRST}.statistics@{i}/4"] for i in (1, 2, 3, 4)]
    carry = f"{FIRST}.statistics.mean.carry"
    assert slices[0].writes == (carry,) and all(carry in op.updates for op in slices[1:])
    assert set(slices[1].roles) == {"x0", "mean.carry"}
    assert slices[3].writes == (f"{FIRST}.mean", f"{FIRST}.inv_std") and "conv1_bn.w0" in slices[3].updates
    assert graph.by_name["bn2.forward@1/4"].reads == ("conv2@1/4", "bn2.mean", "bn2.inv_std")


def test_a_whole_step_with_a_batch_norm_runs_in_stages_too():
    graph = sliced("whole/2")
    kinds = [op.kind for op in graph.ops if op.kind != UPDATE]
    assert kinds == sorted(kinds, key=[FORWARD, BACKWARD].index)
    assert graph.by_name["loss.forward@2/2"].writes == ("loss",)


def test_weights_change_once_no_slice_can_need_them():
    """A gradient that both passes read is made again for the second one, from the weights of the step."""
    graph = sliced("..bn2/2")
    assert graph.by_name["conv2.dgrad@1/2"].recompute is not None
    last = max(graph.position[op.name] for op in graph.ops if "@" in op.name)
    assert graph.position["conv2.w0.update"] > last


@pytest.mark.parametrize("strategy", ["liveness", "recompute", "nested", "hybrid"])
def test_plans_and_schedules_in_stages_are_saved_read_back_and_checked(strategy):
    graph = sliced("..pool/4")
    schedule = compile([graph], strategy=strategy).train
    assert not violations(schedule)
    assert parse(text(schedule), graph, schedule.plan) == schedule
    saved = schedule.plan.to_json(graph)
    assert Plan.from_json(saved, graph) == schedule.plan and saved_slices(saved) == "..pool/4"


def test_statistics_that_are_read_too_early_are_found():
    """The last slice of the statistics and the first one that they normalize change places."""
    schedule = compile([sliced("..bn2/2")]).train
    order = list(schedule.instructions)
    a, b = (
        next(i for i, each in enumerate(order) if each.what == f"{FIRST}.{what}")
        for what in ("statistics@2/2", "forward@1/2")
    )
    order[a], order[b] = order[b]._replace(tick=a), order[a]._replace(tick=b)
    assert any(f"{FIRST}.mean" in sentence for sentence in violations(replace(schedule, instructions=tuple(order))))
