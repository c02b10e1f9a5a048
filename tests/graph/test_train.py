"""The ops of a training step: versions, meeting gradients, what learns and what does not, updates."""

import pytest

from layermem.backends.base import get_device
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.graph.ops import BACKWARD, DATA, DIFF, FORWARD, GRADIENT, HISTORY, PARAMETER, STASH, STATE, UPDATE
from layermem.graph.train import UpdateRule, forward_graph, train_graph, update_graph
from layermem.ops import Fill, Update
from layermem.proto.read import read_net_text
from tests.nets import NETS

MOMENTUM = UpdateRule("SGD", 1)
DATA_LAYERS = """
    layer { name: "in" type: "Input" top: "x" top: "label" input_param { shape { dim: 2 dim: 3 } shape { dim: 2 } } }
"""
LOSS = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "%s" bottom: "label" top: "loss" }\n'


def net_of(text, phase=0):
    return Net(read_net_text(text), phase)


def graph_of(text, rule=MOMENTUM, **options):
    return train_graph(net_of(text), get_device("reference"), rule, **options)


def ip(name, bottom, more="", top=None, outputs=3):
    return f"""
        layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{top or name}" {more}
                 inner_product_param {{ num_output: {outputs} }} }}
    """


def layer(name, kind, bottoms, top, more=""):
    names = " ".join(f'bottom: "{b}"' for b in bottoms.split())
    return f'layer {{ name: "{name}" type: "{kind}" {names} top: "{top}" {more} }}\n'


def names(graph, kind):
    return [op.name for op in graph.ops if op.kind == kind]


CHAIN = DATA_LAYERS + ip("ip1", "x") + layer("relu", "ReLU", "ip1", "ip1") + ip("ip2", "ip1") + LOSS % "ip2"


# -- versions --------------------------------------------------------------------------------------------------


def test_a_layer_in_place_makes_a_new_version_of_its_blob():
    text = DATA_LAYERS + ip("a", "x") + layer("r", "ReLU", "a", "a") + layer("t", "TanH", "a", "a") + LOSS % "a"
    graph = graph_of(text)
    assert [graph.by_name[f"{name}.forward"].writes[0] for name in "art"] == ["a", "a'", "a''"]
    assert graph.by_name["loss.forward"].reads[0] == "a''"
    assert graph.by_name["t.backward"].reads == ("a''", "a''.diff")
    assert [b.name for b in graph.buffers.values() if b.kind == DIFF] == ["loss.diff", "a''.diff", "a'.diff", "a.diff"]


def test_bytes_are_shared_in_place_only_by_permission():
    forward = graph_of(CHAIN).by_name["relu.forward"]
    assert [(o.out, o.over, o.kind) for o in forward.overlays] == [("ip1'", "ip1", "inplace")]
    backward = graph_of(CHAIN).by_name["relu.backward"]
    assert ("ip1.diff", "ip1'.diff", "inplace") in [(o.out, o.over, o.kind) for o in backward.overlays]
    apart = graph_of(DATA_LAYERS + ip("ip1", "x") + layer("relu", "ReLU", "ip1", "r") + LOSS % "r")
    assert [o.kind for o in apart.by_name["relu.forward"].overlays] == ["forward"]


# -- order -----------------------------------------------------------------------------------------------------


def test_a_step_runs_forward_then_backward_in_reverse_and_updates_as_soon_as_they_can():
    graph = graph_of(CHAIN)
    assert [op.name for op in graph.ops] == [
        "in.forward", "ip1.forward", "relu.forward", "ip2.forward", "loss.forward", "loss.output",
        "loss.seed", "loss.backward", "ip2.wgrad", "ip2.dgrad",
        "ip2.w0.update", "ip2.w1.update", "relu.backward", "ip1.wgrad", "ip1.w0.update", "ip1.w1.update",
    ]  # fmt: skip


def test_an_update_comes_after_the_last_reader_of_its_parameter():
    for text in NETS.values():
        graph = graph_of(text)
        for op in (op for op in graph.ops if isinstance(op.record, Update)):
            parameter, gradient = op.roles["w0"], op.roles["dw0"]
            later = graph.ops[graph.position[op.name] + 1 :]
            assert not [each.name for each in later if parameter in each.touches or gradient in each.touches]


def test_an_update_waits_for_the_layer_whose_forward_may_have_to_run_again():
    """A Bias has its gradient before its other op, which does not read it; its forward does."""
    text = DATA_LAYERS + ip("a", "x") + layer("bias", "Bias", "a", "b") + layer("t", "TanH", "b", "t") + LOSS % "t"
    graph = graph_of(text)
    ops = [graph.position[op.name] for op in graph.ops if op.name.startswith("bias.backward")]
    assert graph.position["bias.w0.update"] == max(ops) + 1


def test_readers_of_one_blob_add_their_gradients_in_the_order_in_which_they_run():
    graph = graph_of(
        DATA_LAYERS + ip("a", "x") + ip("b", "a") + ip("c", "a") + layer("s", "Eltwise", "a b c", "s") + LOSS % "s"
    )
    ops = [op for op in graph.ops if "a.diff" in (*op.writes, *op.updates)]
    assert [op.name for op in ops] == ["s.backward", "c.dgrad", "b.dgrad"]
    assert "a.diff" in ops[0].writes and [op.accumulates for op in ops] == [(), ("dx0",), ("dx0",)]
    assert all("a.diff" in op.updates and "a.diff" not in op.writes for op in ops[1:])
    last = graph.by_name["a.wgrad"]
    assert graph.position[last.name] > graph.position["b.dgrad"] and "a.diff" in last.reads


def test_one_layer_that_reads_a_blob_twice_adds_to_what_it_has_just_written():
    graph = graph_of(DATA_LAYERS + ip("a", "x") + layer("s", "Eltwise", "a a", "s") + LOSS % "s")
    op = graph.by_name["s.backward"]
    assert (op.writes, op.updates, op.accumulates) == (("a.diff",), (), ("dx1",))
    assert not [o for o in op.overlays if "a.diff" in (o.out, o.over)]  # both roles hold it: no single place to overlay


def test_shared_parameters_have_one_gradient_and_one_update():
    shared = 'param { name: "w" } param { name: "b" }'
    graph = graph_of(DATA_LAYERS + ip("a", "x", shared) + ip("b", "a", shared) + LOSS % "b")
    assert names(graph, UPDATE) == ["w.shared.update", "b.shared.update"]
    first, second = graph.by_name["b.wgrad"], graph.by_name["a.wgrad"]
    assert first.writes == second.updates == ("w.shared.diff", "b.shared.diff")
    assert second.accumulates == ("dw0", "dw1")
    assert graph.position["w.shared.update"] > graph.position["a.wgrad"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("lr_mult: 2 decay_mult: 0.5", ""),
        ("", "lr_mult: 2 decay_mult: 0.5"),
        ("lr_mult: 2", "decay_mult: 0.5"),
        ("lr_mult: 2", "lr_mult: 2 decay_mult: 0.5"),
    ],
)
def test_a_shared_parameter_has_the_multipliers_that_any_of_its_layers_states(first, second):
    first, second = (f'param {{ name: "w" {text} }}' for text in (first, second))
    graph = graph_of(DATA_LAYERS + ip("a", "x", first) + ip("b", "a", second) + LOSS % "b")
    update = graph.by_name["w.shared.update"].record
    assert (update.lr_mult, update.decay_mult) == (2, 0.5)


def test_layers_that_state_other_multipliers_for_one_parameter_are_refused():
    first, second = (f'param {{ name: "w" lr_mult: {rate} }}' for rate in (2, 3))
    words = "layer 'b' gives the shared parameter 'w' lr_mult 3, and an earlier layer gives it 2; make them equal"
    with pytest.raises(InputError, match=words):
        graph_of(DATA_LAYERS + ip("a", "x", first) + ip("b", "a", second) + LOSS % "b")


def test_a_parameter_may_be_shared_under_the_name_of_a_blob():
    graph = graph_of(DATA_LAYERS + ip("a", "x", 'param { name: "a" }') + LOSS % "a")
    assert graph.buffers["a"].kind == DATA and graph.buffers["a.shared"].kind == PARAMETER


@pytest.mark.parametrize("blob", ["b.w0", "a.diff", "d.winner"])
def test_a_blob_with_the_name_of_something_else_of_the_net_is_refused(blob):
    most = layer("d", "Eltwise", "a " + blob, "d", "eltwise_param { operation: MAX }")
    text = DATA_LAYERS + ip("a", "x", top=blob) + ip("b", blob, top="a") + most + LOSS % "d"
    with pytest.raises(InputError, match=f"<text>: needs the name '{blob}' twice, for its data and its"):
        graph_of(text)


# -- what needs a gradient -------------------------------------------------------------------------------------


def backward(text, **options):
    return names(graph_of(text, **options), BACKWARD)


def test_what_does_not_learn_is_pruned_and_all_below_it():
    frozen = "param { lr_mult: 0 } param { lr_mult: 0 }"
    text = DATA_LAYERS + ip("a", "x", frozen) + layer("r", "ReLU", "a", "a") + ip("b", "a") + LOSS % "b"
    assert backward(text) == ["loss.seed", "loss.backward", "b.wgrad"]
    graph = graph_of(text)
    assert "a.diff" not in graph.buffers and "r.mask" not in graph.buffers
    assert names(graph, UPDATE) == ["b.w0.update", "b.w1.update"]


def test_a_bias_alone_may_learn():
    text = DATA_LAYERS + ip("a", "x", "param { lr_mult: 0 } param { lr_mult: 1 }") + LOSS % "a"
    op = graph_of(text).by_name["a.wgrad"]
    assert op.writes == ("a.w1.diff",) and "x" not in op.reads


def test_propagate_down_ends_a_gradient():
    text = DATA_LAYERS + ip("a", "x") + ip("b", "a", "propagate_down: false") + LOSS % "b"
    assert backward(text) == ["loss.seed", "loss.backward", "b.wgrad"]


def test_a_gradient_may_be_forced_down_to_the_data_but_never_into_a_label():
    text = DATA_LAYERS + ip("a", "x") + LOSS % "a"
    assert "x.diff" not in graph_of(text).buffers
    forced = graph_of(text, force_backward=True)
    assert "x.diff" in forced.buffers and "label.diff" not in forced.buffers
    assert "x.diff" in graph_of("force_backward: true " + text).buffers


def test_any_top_may_have_a_weight_in_the_objective():
    text = DATA_LAYERS + ip("a", "x") + layer("t", "TanH", "a", "t", "loss_weight: 0.5") + LOSS % "a"
    graph = graph_of(text)
    seed = graph.by_name["t.seed"]
    assert seed.writes == ("t.diff",) and seed.record == Fill(0.5)
    assert graph.by_name["t.backward"].accumulates == ("dx0",)  # to what the loss left


def test_a_weighted_top_that_others_read_too_gets_the_sum_of_both():
    text = DATA_LAYERS + ip("a", "x", "loss_weight: 2") + layer("t", "TanH", "a", "t") + LOSS % "t"
    graph = graph_of(text)
    writers = [op for op in graph.ops if "a.diff" in (*op.writes, *op.updates)]
    assert [op.name for op in writers] == ["t.backward", "a.seed"]
    assert "a.diff" in writers[1].updates and writers[1].accumulates == ("y0",)


def test_what_no_loss_depends_on_has_no_backward():
    text = DATA_LAYERS + ip("a", "x") + ip("side", "a") + LOSS % "a"
    assert "side.wgrad" not in backward(text)
    assert "side.w0.diff" not in graph_of(text, rule=None).buffers


def test_a_parameter_that_no_gradient_reaches_is_updated_with_zero_at_the_end():
    text = DATA_LAYERS + ip("a", "x") + ip("side", "a", "param { lr_mult: 1 } param { lr_mult: 0 }") + LOSS % "a"
    graph = graph_of(text, clip=True)
    zero, norm, update = (graph.by_name[name] for name in ("side.w0.zero", "clip", "side.w0.update"))
    assert graph.position[zero.name] < graph.position[norm.name] < graph.position[update.name]
    assert zero.writes == ("side.w0.diff",) and "side.w0.diff" in update.reads and "side.w0.diff" not in norm.reads
    assert "side.w1.update" not in graph.by_name and "side.w1.h0" not in graph.buffers


def test_gradients_of_zero_are_there_one_after_the_other():
    graph = graph_of(DATA_LAYERS + ip("a", "x") + ip("side", "a") + LOSS % "a")
    assert [op.name for op in graph.ops[-4:]] == [f"side.w{i}.{op}" for i in (0, 1) for op in ("zero", "update")]


def test_the_step_of_a_net_without_a_loss_has_no_updates():
    assert not graph_of(DATA_LAYERS + ip("a", "x")).of_kind(UPDATE)


def test_a_top_that_no_op_reads_has_a_gradient_of_zero_where_its_layer_needs_one():
    cut = 'layer { name: "cut" type: "Slice" bottom: "a" top: "p" top: "q" slice_param { slice_point: 2 } }\n'
    graph = graph_of(DATA_LAYERS + ip("a", "x", outputs=4) + cut + LOSS % "p")
    assert graph.by_name["q.zero"].writes == ("q.diff",)
    assert graph.position["q.zero"] < graph.position["cut.backward"]


# -- held gradients, clipping ----------------------------------------------------------------------------------


def test_held_gradients_outlive_the_step_and_are_added_to():
    held = graph_of(CHAIN, None)
    assert not names(held, UPDATE)
    gradients = [b for b in held.buffers.values() if b.kind == GRADIENT]
    assert len(gradients) == 4 and all(b.persistent for b in gradients)
    assert held.by_name["ip1.wgrad"].accumulates == ("dw0", "dw1")
    assert held.by_name["ip1.wgrad"].updates == ("ip1.w0.diff", "ip1.w1.diff")


def test_held_gradients_are_zeroed_once_their_update_has_read_them():
    update = update_graph(net_of(CHAIN), get_device("reference"), MOMENTUM, clip=True)
    order = [op.name for op in update.ops]
    assert order[0] == "clip" and order[-4:] == [f"{n}.zero" for n in ("ip1.w0", "ip1.w1", "ip2.w0", "ip2.w1")]
    assert all(b.persistent for b in update.buffers.values() if b.kind in (PARAMETER, HISTORY, GRADIENT))


def test_clipping_reads_every_gradient_before_any_update():
    graph = graph_of(CHAIN, clip=True)
    clip = graph.by_name["clip"]
    assert set(clip.reads) == {b.name for b in graph.buffers.values() if b.kind == GRADIENT}
    assert all(graph.position[name] > graph.position["clip"] for name in names(graph, UPDATE) if name != "clip")


@pytest.mark.parametrize("history_count", [0, 1, 2])
def test_a_rule_has_as_many_history_blobs_as_it_declares(history_count):
    graph = graph_of(CHAIN, rule=UpdateRule("SGD", history_count))
    assert len([b for b in graph.buffers.values() if b.kind == HISTORY]) == 4 * history_count


# -- what is true of every graph -------------------------------------------------------------------------------


@pytest.mark.parametrize("text", NETS.values(), ids=NETS.keys())
def test_every_op_names_each_buffer_once_and_every_value_is_made_before_it_is_read(text):
    for graph in (graph_of(text), graph_of(text, None), forward_graph(net_of(text, 1), get_device("reference"))):
        made = {b.name for b in graph.persistent()}
        for op in graph.ops:
            assert len(op.touches) == len(set(op.touches))
            assert set(op.roles.values()) == set(op.touches)
            assert {*op.reads, *op.updates} <= made, op.name
            made |= {*op.writes}
            if op.recompute is not None:
                assert op.kind == FORWARD and not op.recompute.updates
                assert {*op.recompute.writes} <= {*op.writes}
                assert {*op.recompute.reads} <= {*op.reads, *op.writes}
                assert not [b for b in op.recompute.writes if graph.buffers[b].persistent]
        assert {b.kind for b in graph.buffers.values()} <= {DATA, DIFF, STASH, PARAMETER, HISTORY, GRADIENT, STATE}
        assert len(graph.by_name) == len(graph.ops)


def test_a_fingerprint_changes_with_shapes_and_ops_but_not_with_names_of_nets():
    one = graph_of(CHAIN).fingerprint
    assert graph_of(CHAIN).fingerprint == one == graph_of('name: "other" ' + CHAIN).fingerprint
    assert graph_of(CHAIN.replace("dim: 2 dim: 3", "dim: 2 dim: 4")).fingerprint != one
    assert graph_of(CHAIN.replace('"ReLU"', '"Sigmoid"')).fingerprint != one
    assert graph_of(CHAIN, rule=UpdateRule("SGD", 0)).fingerprint != one
