"""Steps in roles become ops over buffers: who writes, who accumulates, what may overlay."""

import pytest

from layermem.backends.reference import ReferenceDevice
from layermem.errors import InputError
from layermem.graph.nodes import OpNode
from layermem.graph.op_builder import OpBuilder, role_map
from layermem.graph.ops import BACKWARD, DATA, DIFF, FORWARD, PARAMETER
from layermem.layers import Step
from layermem.ops import Fill, Tensor
from tests.layers.harness import layer_of

X = Tensor((4, 5))
ZERO = Step("fill", (), ("y0",), record=Fill(0.0))


def builder(*buffers: str, kind: str = DIFF) -> OpBuilder:
    build = OpBuilder(ReferenceDevice(), "net.prototxt")
    for name in buffers:
        build.buffer(name, kind, X)
    return build


def relu_node(bottom: str, top: str) -> OpNode:
    layer = layer_of(f'type: "ReLU" name: "r" bottom: "{bottom}" top: "{top}"', X.shape)
    return OpNode(layer, (layer,), (bottom,), (top,), (), (True,), (0.0,))


def test_the_first_op_writes_a_gradient_and_a_later_one_accumulates():
    build = builder("x.diff")
    for name in ("first", "second"):
        build.add(name, BACKWARD, ZERO, {"y0": "x.diff"})
    first, second = build.ops
    assert (first.writes, first.updates, first.accumulates) == (("x.diff",), (), ())
    assert (second.writes, second.updates, second.accumulates) == ((), ("x.diff",), ("y0",))


def test_a_persistent_gradient_is_accumulated_from_the_start():
    build = OpBuilder(ReferenceDevice(), "net.prototxt")
    build.buffer("w.diff", "gradient", X, persistent=True)
    build.add("first", BACKWARD, ZERO, {"y0": "w.diff"})
    assert build.ops[0].updates == ("w.diff",) and build.ops[0].accumulates == ("y0",)


def test_a_forward_op_never_accumulates():
    build = builder("x.diff")
    build.add("a", FORWARD, ZERO, {"y0": "x.diff"})
    build.add("b", FORWARD, ZERO, {"y0": "x.diff"})
    assert [op.accumulates for op in build.ops] == [(), ()]


def test_roles_without_a_buffer_are_left_out():
    build = builder("x", "y", kind=DATA)
    node = relu_node("x", "y")
    op = build.make_step("r.forward", FORWARD, node.emitter.forward(), {"x0": "x", "y0": "y"}, node, 0)
    assert op.writes == ("y",) and "mask" not in op.roles
    assert (op.layer_name, op.layer_type, op.kernel, op.node) == ("r", "ReLU", "Pointwise.forward", 0)
    assert op.nbytes == 2 * X.nbytes


@pytest.mark.parametrize("top, kind", [("y", "forward"), ("x", "inplace")])
def test_an_overlay_is_in_place_where_the_net_names_one_blob_twice(top, kind):
    build = builder("x", "x'", kind=DATA)
    node = relu_node("x", top)
    op = build.make_step("r.forward", FORWARD, node.emitter.forward(), {"x0": "x", "y0": "x'"}, node, 0)
    assert [(o.out, o.over, o.kind) for o in op.overlays] == [("x'", "x", kind)]


def test_no_overlay_on_a_persistent_buffer_or_on_one_with_two_roles():
    build = OpBuilder(ReferenceDevice(), "net.prototxt")
    build.buffer("x", DATA, X, persistent=True)
    build.buffer("y", DATA, X)
    node = relu_node("x", "y")
    step = node.emitter.forward()
    assert not build.make_step("r", FORWARD, step, {"x0": "x", "y0": "y"}, node, 0).overlays
    assert not build.make_step("r", FORWARD, step, {"x0": "y", "y0": "y"}, node, 0).overlays


def test_one_name_for_two_kinds_is_an_error():
    build = builder("ip.w0", kind=PARAMETER)
    with pytest.raises(InputError, match=r"net\.prototxt: needs the name 'ip\.w0' twice"):
        build.buffer("ip.w0", DATA, X)


def test_roles_are_numbered_by_position():
    assert role_map("x", ("data", "label")) == {"x0": "data", "x1": "label"}
