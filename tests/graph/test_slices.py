"""Graphs whose ops run in slices of the batch: what becomes pieces, views and carries, and what is refused."""

from dataclasses import replace
from functools import partial

import pytest

from layermem.backends.cpu import CpuDevice
from layermem.backends.cuda import CudaDevice
from layermem.backends.reference import ReferenceDevice
from layermem.data import probe
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.graph.ops import BACKWARD, FORWARD, UPDATE, Graph, unique
from layermem.graph.slices import Cut, sliced_graph
from layermem.graph.train import UpdateRule, train_graph
from layermem.ops import BatchSlice
from layermem.planning.partition_choices import CHOICES
from layermem.planning.plan import Plan, saved_slices
from layermem.proto.read import read_net_text
from layermem.schedule.check import violations
from layermem.schedule.text import instruction_text, parse, schedule_values, text
from tests.compiling import compile
from tests.nets import CHAIN, DATA, LOSS, NETS, conv, relu

MOMENTUM = UpdateRule("SGD", 1)


def mirrors_forward(graph: Graph) -> bool:
    """Whether the units that have a backward run it in the opposite order of their forward."""
    forward, backward = (unique(op.node_run for op in graph.of_kind(kind)) for kind in (FORWARD, BACKWARD))
    return list(backward) == [unit for unit in reversed(forward) if unit in backward]


def product(name: str, bottom: str, outputs: int, param: str = "") -> str:
    return f"""layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" {param}
        inner_product_param {{ num_output: {outputs} bias_term: false weight_filler {{ type: "xavier" }} }} }}"""


SHARED_PARAM = 'param { name: "w" }'
TWO_PRODUCTS = f"""
    {DATA} {product("in", "data", 16)} {product("one", "in", 16, SHARED_PARAM)} {relu("one")}
    {product("two", "one", 16, SHARED_PARAM)} {LOSS % "two"}
"""


def net_of(source: str) -> Net:
    return Net(read_net_text(source), 0, probe=probe)


def sliced(
    source: str, cut: str, device: ReferenceDevice | None = None, rule: UpdateRule | None = MOMENTUM, **options: object
):
    device = device or ReferenceDevice()
    make = partial(train_graph, device=device, rule=rule, **options)
    return sliced_graph(net_of(source), make, Cut.parse(cut), device, CHOICES)


@pytest.mark.parametrize("written", ["conv1..pool1/2", "..pool1/2", "conv2../4", "whole/4"])
def test_a_cut_is_read_as_it_is_written(written):
    assert str(Cut.parse(written)) == written


def test_a_cut_of_one_layer_may_name_it_once():
    assert Cut.parse("conv1/2") == Cut("conv1", "conv1", 2) and Cut.parse("../2") == Cut.parse("whole/2")


@pytest.mark.parametrize("written", ["conv1..pool1", "/4", "conv1..pool1/x", "4"])
def test_a_cut_without_layers_or_a_count_is_refused(written):
    with pytest.raises(InputError, match=r"name no layers and a count; give it as FIRST\.\.LAST/COUNT"):
        Cut.parse(written)


# -- order and names ---------------------------------------------------------------------------------------------------


def names(graph, *kinds):
    return [op.name for op in graph.ops if op.kind in kinds]


def test_the_whole_step_runs_slice_by_slice_and_the_updates_behind_the_last_one():
    graph = sliced(CHAIN, "whole/2")
    whole = train_graph(net_of(CHAIN), ReferenceDevice(), MOMENTUM)
    once = ("data.forward", "score.wgrad", "loss.output")
    inside = [op.name for op in whole.ops if op.kind != UPDATE and op.name not in once]
    slices = [f"{name}@{i}/2" for i in (1, 2) for name in inside]
    assert names(graph, FORWARD, BACKWARD) == ["data.forward", *slices, "loss.output", "score.wgrad"]
    assert graph.position["conv2.w0.update"] > graph.position["conv2.wgrad@2/2"]
    assert {op.name for op in graph.of_kind(UPDATE)} == {op.name for op in whole.of_kind(UPDATE)}


def test_layers_that_share_a_weight_add_to_its_gradient_in_the_order_of_the_whole_step():
    """On cpu the second sum goes on from the first: it waits for all slices of that."""
    order = ["right.wgrad@1/2", "right.wgrad@2/2", "left.wgrad"]
    for device, wanted in ((CpuDevice(), order), (ReferenceDevice(), [*order[:1], "left.wgrad@1/2", *order[1:2]])):
        graph = sliced(NETS["shared"], "whole/2", device)
        ops = [op.name for op in graph.ops if ".wgrad" in op.name and op.name[0] in "lr"]
        ops = [name.replace("left+left_relu", "left") for name in ops]  # fused on cpu
        assert ops[: len(wanted)] == wanted


def test_of_a_prefix_the_forward_slices_run_in_falling_and_the_backward_slices_in_rising_order():
    graph = sliced(CHAIN, "..pool1/2")
    order = [f"{name}@{i}/2" for i in (2, 1) for name in ("conv1.forward", "conv1_relu.forward", "pool1.forward")]
    assert names(graph, FORWARD)[:7] == ["data.forward", *order]
    order = [f"{name}@{i}/2" for i in (1, 2) for name in ("pool1.backward", "conv1_relu.backward", "conv1.wgrad")]
    assert names(graph, BACKWARD)[-6:] == order
    assert mirrors_forward(graph)


def test_what_one_slice_touches_is_a_piece_and_what_crosses_the_border_is_viewed():
    graph = sliced(CHAIN, "..pool1/2")
    first, second = BatchSlice(0, 2, 4), BatchSlice(2, 2, 4)
    conv, pool = graph.by_name["conv1.forward@2/2"], graph.by_name["pool1.forward@2/2"]
    assert conv.views == {"x0": second} and conv.reads == ("data", "conv1.w0", "conv1.w1")
    assert conv.writes == ("conv1@2/2",) and graph.buffers["conv1@2/2"].tensor.shape == (2, 4, 6, 5)
    assert pool.views == {"y0": second} and "pool1" in pool.writes  # the first to run writes, the others update
    assert "pool1" in graph.by_name["pool1.forward@1/2"].updates
    assert graph.by_name["pool1.backward@1/2"].views == {"dy0": first}
    assert pool.recompute is None and conv.recompute is not None and conv.recompute.views == conv.views
    assert pool.record.batch_slice == second and graph.slices == "..pool1/2"


def test_a_sum_over_the_batch_is_carried_and_the_last_slice_makes_it():
    graph = sliced(CHAIN, "whole/4")
    slices = [graph.by_name[f"conv2.wgrad@{i}/4"] for i in (1, 2, 3, 4)]
    carries = ("conv2.wgrad.dw0.carry", "conv2.wgrad.dw1.carry")
    assert slices[0].writes == carries and all(op.updates == carries for op in slices[1:])
    assert all(not op.writes for op in slices[1:3]) and slices[3].writes == ("conv2.w0.diff", "conv2.w1.diff")
    assert set(slices[1].roles) == {"x0", "dy0", "dw0.carry", "dw1.carry"}
    assert graph.by_name["loss.forward@4/4"].writes == ("loss",)


def test_a_gradient_that_is_larger_than_what_it_sums_is_summed_once_behind_the_slices():
    graph = sliced(CHAIN, "whole/4")
    wgrad = graph.by_name["score.wgrad"]
    operands, gradient = ([graph.buffers[b].nbytes for b in buffers] for buffers in (wgrad.reads, wgrad.writes))
    assert wgrad.record.batch_slice is None and not wgrad.views and sum(operands) < sum(gradient)
    dy = wgrad.roles["dy0"]
    assert graph.by_name["loss.backward@1/4"].writes == (dy,) and dy in graph.by_name["loss.backward@2/4"].updates
    assert graph.position["score.wgrad"] > graph.position["conv1.wgrad@4/4"]
    assert [op.name for op in graph.ops if op.step == "wgrad" and op.record.batch_slice is None] == ["score.wgrad"]


def test_a_gradient_to_which_two_layers_add_is_summed_in_their_order():
    """Both run behind the slices, where the later layer writes first."""
    graph = sliced(TWO_PRODUCTS, "whole/2")
    first, second = graph.by_name["two.wgrad"], graph.by_name["one.wgrad"]
    assert first.writes == ("w.shared.diff",) and "w.shared.diff" in second.updates
    assert graph.position[first.name] < graph.position[second.name]
    apart = sliced(TWO_PRODUCTS.replace(SHARED_PARAM, ""), "whole/2")
    assert {"two.wgrad", "one.wgrad"} < {*names(apart, BACKWARD)}


def test_accumulated_gradients_are_added_to_by_the_last_slice():
    graph = sliced(CHAIN, "whole/2", rule=None)
    last = graph.by_name["conv2.wgrad@2/2"]
    assert last.accumulates == ("dw0", "dw1") and {"conv2.w0.diff", "conv2.w1.diff"} < {*last.updates}
    assert graph.by_name["conv2.wgrad@1/2"].accumulates == ()


def test_what_only_the_host_reads_runs_once_behind_the_slices():
    """The accuracy mixes items; the scores that it reads are whole then."""
    graph = sliced(CHAIN.replace("include { phase: TEST }", ""), "whole/2")
    accuracy = graph.by_name["accuracy.forward"]
    assert accuracy.record.batch_slice is None and accuracy.reads == ("score", "label")
    assert graph.by_name["score.forward@1/2"].views["y0"] == BatchSlice(0, 2, 4)
    assert graph.position["accuracy.forward"] > graph.position["conv1.wgrad@2/2"]


def test_a_blob_that_is_held_stays_whole():
    graph = sliced(CHAIN, "whole/2", keep=["pool1"])
    assert "pool1" in graph.buffers and "pool1.diff" in graph.buffers and "conv2@1/2" in graph.buffers
    assert graph.ops[-1].reads == ("pool1", "pool1.diff")


def test_a_slice_counts_its_share_of_the_work_and_all_of_the_weights():
    graph, whole = sliced(CHAIN, "whole/2"), train_graph(net_of(CHAIN), ReferenceDevice(), MOMENTUM)
    op, all_of_it = graph.by_name["conv2.forward@1/2"], whole.by_name["conv2.forward"]
    weights = sum(whole.buffers[name].nbytes for name in ("conv2.w0", "conv2.w1"))
    assert 2 * op.flops == all_of_it.flops and 2 * (op.nbytes - weights) == all_of_it.nbytes - weights


# -- plans and schedules -----------------------------------------------------------------------------------------------


def test_a_saved_plan_says_its_slices_and_is_for_them_alone():
    graph, whole = sliced(CHAIN, "..pool1/2"), train_graph(net_of(CHAIN), ReferenceDevice(), MOMENTUM)
    plan = compile([graph], strategy="recompute").plan
    saved = plan.to_json(graph)
    assert Plan.from_json(saved, graph) == plan and saved_slices(saved) == "..pool1/2"
    assert saved_slices(compile([whole]).plan.to_json(whole)) == "" and graph.fingerprint != whole.fingerprint
    with pytest.raises(InputError, match=r"was made with slices \.\.pool1/2, and this step is planned without slices"):
        Plan.from_json(saved, whole)
    with pytest.raises(InputError, match=r"without slices, and this step is planned with slices \.\.pool1/2"):
        Plan.from_json(compile([whole]).plan.to_json(whole), graph)


def test_a_schedule_prints_the_items_of_views_and_reads_them_back():
    graph = sliced(CHAIN, "..pool1/2")
    schedule = compile([graph], strategy="recompute").train
    assert "data@" in instruction_text(schedule) and "[2:4]" in instruction_text(schedule)
    assert parse(text(schedule), graph, schedule.plan) == schedule
    tick = next(i for i in schedule_values(schedule)["instructions"] if i["what"] == "conv1.forward@2/2")
    assert tick["reads"][0]["items"] == [2, 4] and "items" not in tick["reads"][1]


def changed(schedule, what, **views):
    """The schedule with other views of the op `what`, in the graph and where it runs."""
    op = replace(schedule.graph.by_name[what], views=views)
    graph = replace(schedule.graph, ops=tuple(op if each.name == what else each for each in schedule.graph.ops))
    instructions = tuple(each._replace(op=op) if each.what == what else each for each in schedule.instructions)
    return replace(schedule, graph=graph, instructions=instructions)


def test_a_schedule_whose_views_do_not_make_up_the_batch_is_unsafe():
    schedule = compile([sliced(CHAIN, "..pool1/2")]).train
    assert not violations(schedule)
    lost = changed(schedule, "pool1.forward@2/2", y0=BatchSlice(0, 2, 4))
    assert any("the views of 'pool1' are not a partition" in sentence for sentence in violations(lost))
    overlapping = changed(schedule, "pool1.forward@2/2", y0=BatchSlice(1, 2, 4))
    assert any("the views of 'pool1' are not a partition" in sentence for sentence in violations(overlapping))
    beyond = changed(schedule, "pool1.forward@2/2", y0=BatchSlice(3, 2, 4))
    assert any("views items 3..4 of 4 of 'pool1'" in sentence for sentence in violations(beyond))


def test_a_slice_must_not_be_read_before_it_is_written():
    """The last forward slice and the layer behind the slices change places."""
    schedule = compile([sliced(CHAIN, "..pool1/2")]).train
    order = list(schedule.instructions)
    a, b = (
        next(i for i, each in enumerate(order) if each.what == what) for what in ("pool1.forward@1/2", "conv2.forward")
    )
    order[a], order[b] = order[b]._replace(tick=a), order[a]._replace(tick=b)
    assert any("reads 'pool1'" in sentence for sentence in violations(replace(schedule, instructions=tuple(order))))


# -- refusals ----------------------------------------------------------------------------------------------------------

MADE_LABELS = f"""
    {DATA} {conv("stem", "data", 5, 1)}
    layer {{ name: "half" type: "Power" bottom: "label" top: "half" power_param {{ scale: 0.5 }} }}
    layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "flat" bottom: "half" top: "loss"
            loss_param {{ ignore_label: 1 }} }}
""".replace(
    'layer { name: "half"',
    'layer { name: "flat" type: "InnerProduct" bottom: "stem" top: "flat" '
    'inner_product_param { num_output: 5 } } layer { name: "half"',
)
FIXED = f"""
    {DATA} layer {{ name: "four" type: "Reshape" bottom: "data" top: "four"
                   reshape_param {{ shape {{ dim: 2 dim: 2 dim: 3 dim: 30 }} }} }}
    layer {{ name: "back" type: "Reshape" bottom: "four" top: "back" reshape_param {{ shape {{ dim: 4 dim: -1 }} }} }}
    {LOSS % "back"}
"""
VOLUMES = DATA.replace("dim: 6 dim: 5", "dim: 4 dim: 6 dim: 5") + conv("solid", "data", 3, 3) + LOSS % "solid"
REFUSED = {
    "a batch of 4": (CHAIN, "whole/3", "has a batch of 4, which 3 slices cannot share equally; cut it into 2 or 4"),
    "no such layer": (CHAIN, "conv1..pool7/2", "has no layer 'pool7' to slice at; did you mean 'pool1'"),
    "backwards": (CHAIN, "pool1..conv1/2", "has layer 'pool1' behind 'conv1'; give the earlier one first"),
    "statistics": (NETS["bn"], "whole/2", ":[0-9]+: layer 'one' mixes the items of a batch"),
    "a loss in a prefix": (CHAIN.replace(LOSS % "conv2", (LOSS % "conv2") + conv("after", "data", 3, 1)
        + 'layer { name: "more" type: "Reduction" bottom: "after" top: "more" loss_weight: 1 }'), "..loss/2",
        "layer 'loss' sums over the batch in forward.*end the slices before it, or slice the whole step"),
    "labels": (MADE_LABELS, "whole/2", "layer 'loss' counts all labels in 'half', which is made slice by slice; give"),
    "axis 0": (FIXED, "whole/2", "layer 'four' cannot be sliced: with a batch of 2, it turns"),
    "recurrent": (NETS["recurrent"], "whole/2", "layer 'steps' cannot be sliced: with a batch of 2"),
    "a border between frames": (VOLUMES, "solid/top../2",
        "layer 'solid/top' has 'solid/maps', which stays whole, but its items lie apart; slice other"),
    "no gradient": (CHAIN, "data/2", "no gradients in layers data..data to slice"),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_sliced_is_refused_by_name(why):
    source, cut, message = REFUSED[why]
    with pytest.raises(InputError, match=message):
        sliced(source, cut)


def test_ranges_that_end_within_a_layer_of_steps_are_refused_in_a_sentence():
    """Some parts have fewer rows than there are items."""
    layers = [node.layer.name for node in net_of(NETS["recurrent"]).nodes]
    for last in layers:
        try:
            sliced(NETS["recurrent"], f"..{last}/2", CpuDevice())
        except InputError as error:
            assert "slice" in str(error)


def test_a_device_that_cannot_carry_a_sum_refuses_the_layer():
    class Other(ReferenceDevice):
        def carry_bytes(self, record, step, role):
            return None

    message = "layer 'loss' cannot be sliced on device reference, which has no sum of 'loss' by slices"
    with pytest.raises(InputError, match=message) as refused:
        sliced(CHAIN, "whole/2", Other())
    assert refused.value.line is not None


def test_a_device_that_cannot_carry_the_sums_of_frames_refuses_the_layer():
    """The gradient cannot be summed behind the slices, since its operands exist in pieces only."""

    class Other(ReferenceDevice):
        def carry_bytes(self, record, step, role):
            return None if step == "wgrad" else super().carry_bytes(record, step, role)

    message = "layer 'solid' cannot be sliced on device reference, which has no sum of 'solid.w0.diff' by slices"
    with pytest.raises(InputError, match=message):
        sliced(VOLUMES, "whole/2", Other())


@pytest.mark.parametrize("device", [ReferenceDevice(), CudaDevice()], ids=["reference", "cuda"])
def test_a_range_may_name_a_layer_that_consists_of_several(device):
    graph = sliced(VOLUMES, "solid/2", device)
    for part in ("solid/images", "solid", "solid/top"):
        assert {f"{part}.forward@1/2", f"{part}.forward@2/2"} <= graph.by_name.keys()
    assert graph.by_name["solid/images.forward@2/2"].views.keys() == {"x0"}  # frames exist in pieces only
    assert graph.by_name["solid/top.forward@2/2"].views.keys() == {"y0"}
    assert {"solid.wgrad.dw0.carry", "solid.wgrad.dw1.carry"} <= graph.buffers.keys()
    assert graph.slices == "solid..solid/2"


def test_a_device_without_the_passes_of_a_batch_norm_refuses_it():
    class Other(ReferenceDevice):
        def carry_bytes(self, record, step, role):
            return None if step == "statistics" else super().carry_bytes(record, step, role)

    with pytest.raises(InputError, match="'stem_bn' cannot be sliced on device reference, which has no sum of 'stem"):
        sliced(NETS["residual"], "..stem_relu/2", Other())


def test_layers_that_are_not_sliced_may_mix_items():
    """The batch normalization stands behind the slices."""
    source = f"""
        {DATA} {conv("stem", "data", 4, 3)} {relu("stem")} {conv("next", "stem", 4, 1)}
        layer {{ name: "norm" type: "BatchNorm" bottom: "next" top: "norm" }} {LOSS % "norm"}
    """
    graph = sliced(source, "..next/2")
    assert graph.by_name["norm.forward"].reads[:1] == ("next",) and "stem@1/2" in graph.buffers
