"""ONNX models as nets: there and back, operators by hand, PyTorch's models, and what is refused."""

from itertools import product

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from layermem import api
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.integrations.onnx import convert, export_model, load
from layermem.integrations.onnx.exporting import write_model
from layermem.integrations.onnx.node import IMPORTERS
from layermem.proto.read import read_net_text
from layermem.proto.schema import TEST
from layermem.proto.weights import Weights, read_weights
from layermem.solver.parameters import match_weights
from tests.integrations.onnx.running import run_net, run_onnx, values_of
from tests.integrations.onnx.test_exporting import SMALL, filled, net_of


def net_and_values(imported):
    net = Net(read_net_text(imported.prototxt), TEST)
    values, unknown = match_weights((net,), Weights({name: blobs for name, (_, blobs) in imported.weights.items()}))
    assert not unknown
    return net, {name: np.asarray(value) for name, value in values.items()}


def random(*shape):
    return np.random.default_rng(sum(shape) + len(shape)).standard_normal(shape).astype(np.float32)


# -- there and back ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shape"), [("digits", (2, 1, 8, 8)), ("squeezenet10", (1, 3, 67, 67)), ("mobilenet1", (1, 3, 224, 224))]
)
def test_a_net_comes_back_with_the_same_bits(tmp_path, name, shape):
    net = api.build_net(f"prototxt/{name}/train_val.prototxt", "TEST", inputs={"data": shape})
    values = filled(net)
    for key in values:  # averages that no division changes
        if key.endswith(".w2"):
            values[key][:] = 1
    model = export_model(net, values).model
    write_model(tmp_path / "m.onnx", model)
    back, again = net_and_values(load(tmp_path / "m.onnx"))
    assert again.keys() == values.keys()
    assert all(np.array_equal(again[key], values[key]) and again[key].shape == values[key].shape for key in values)
    inputs = {"data": np.random.default_rng(6).standard_normal(shape).astype(np.float32)}
    ours, theirs = run_net(back, inputs, again), run_onnx(model, inputs)
    assert abs(ours["prob"] - theirs["prob"]).max() <= 1e-5 * theirs["prob"].max() < 1e-5


def test_a_net_is_written_with_its_weights_beside_it(tmp_path):
    net = net_of(SMALL, data=(2, 3, 5, 5))
    values = values_of(net, np.random.default_rng(0))
    write_model(tmp_path / "m.onnx", export_model(net, values, any_batch=True).model)
    imported, weights = convert(tmp_path / "m.onnx", tmp_path / "n.prototxt", batch=4)
    assert weights == str(tmp_path / "n.caffemodel")
    kept = read_weights(weights)
    assert {name: len(blobs) for name, blobs in kept.items()} == {"conv": 2, "ip": 2}
    assert np.array_equal(kept["ip"][0], values["ip.w0"])
    assert api.build_net(tmp_path / "n.prototxt", "TEST").blobs["data"].shape == (4, 3, 5, 5)
    assert [layer.type for layer in imported.net.layer] == [
        "Input",
        "Convolution",
        "ReLU",
        "Dropout",
        "Flatten",
        "InnerProduct",
    ]


# -- operators by hand -------------------------------------------------------------------------------------------------


def model_of(nodes, shape=(2, 4, 6, 6), opset=17, constants=None, output="y"):
    """A model of one input `x` and one output; nodes are (op, inputs, outputs, attributes)."""
    made = [helper.make_node(op, i.split(), o.split(), f"n{k}", **a) for k, (op, i, o, a) in enumerate(nodes)]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *shape[1:]])]
    results = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)]
    tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in (constants or {}).items()]
    graph = helper.make_graph(made, "by hand", given, results, tensors)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)])


def same_in_onnx_runtime(tmp_path, model, shape):
    onnx.save(model, tmp_path / "m.onnx")
    x = random(*shape)
    theirs = run_onnx(model, {"x": x})
    net, values = net_and_values(load(tmp_path / "m.onnx", batch=shape[0]))
    ours = run_net(net, {"x": x}, values)
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert value.shape == ours[name].shape
        np.testing.assert_allclose(ours[name], value, rtol=1e-4, atol=1e-5)
    return net


C, V, IMAGE = random(4, 1, 1), random(4), (2, 4, 6, 6)
I64 = np.int64
GRAPHS = {
    "scale and shift": ([("Mul", "x c", "a", {}), ("Add", "a c", "y", {})], {"c": C}),
    "numbers": ([("Mul", "x c", "a", {}), ("Sub", "c a", "b", {}), ("Div", "b c", "y", {})], {"c": np.float32(3)}),
    "one by x": ([("Exp", "x", "a", {}), ("Div", "c a", "y", {})], {"c": np.float32(3)}),
    "sums of blobs": (
        [("Relu", "x", "a", {}), ("Sub", "x a", "b", {}), ("Sum", "x a b", "c", {}), ("Max", "c x", "y", {})],
        {},
    ),
    "gates": ([("GlobalAveragePool", "x", "a", {}), ("Sigmoid", "a", "b", {}), ("Mul", "b x", "y", {})], {}),
    "pixels": ([("ReduceMean", "x", "y", {"axes": [2, 3], "keepdims": 0})], {}),
    "rows": ([("ReduceSum", "x s", "y", {"keepdims": 1})], {"s": np.array([2, 3], I64)}),
    "hard": ([("HardSwish", "x", "a", {}), ("HardSigmoid", "a", "y", {"alpha": 0.3})], {}),
    "powers": (
        [("Abs", "x", "a", {}), ("Sqrt", "a", "b", {}), ("Pow", "b c", "d", {}), ("Neg", "d", "y", {})],
        {"c": np.float32(3)},
    ),
    "a product": (
        [("Flatten", "x", "a", {}), ("MatMul", "a w", "b", {}), ("Add", "b v", "y", {})],
        {"w": random(144, 4), "v": V},
    ),
    "columns": ([("MatMul", "x w", "y", {})], {"w": random(6, 3)}),
    "parts": (
        [("Split", "x s", "a b", {"axis": 1}), ("Concat", "b a", "y", {"axis": 1})],
        {"s": np.array([1, 3], I64)},
    ),
    "a part": (
        [("Slice", "x s e a", "y", {})],
        {"s": np.array([1, -4], I64), "e": np.array([3, 99], I64), "a": np.array([1, 3], I64)},
    ),
    "axes": (
        [("Transpose", "x", "a", {"perm": [0, 2, 3, 1]}), ("Unsqueeze", "a s", "b", {}), ("Squeeze", "b s", "y", {})],
        {"s": np.array([1], I64)},
    ),
    "scores": ([("GlobalMaxPool", "x", "a", {}), ("Flatten", "a", "b", {}), ("LogSoftmax", "b", "y", {})], {}),
    "a shape that is computed": (
        [
            ("Shape", "x", "a", {}),
            ("Gather", "a zero", "b", {}),
            ("Unsqueeze", "b ax", "c", {}),
            ("Concat", "c rest", "d", {"axis": 0}),
            ("Reshape", "x d", "y", {}),
        ],
        {"zero": np.array(0, I64), "ax": np.array([0], I64), "rest": np.array([-1, 9], I64)},
    ),
    "padding that goes into the window": (
        [("Pad", "x p", "a", {}), ("Conv", "a w", "y", {"strides": [2, 2]})],
        {"p": np.array([0, 0, 1, 1, 0, 0, 1, 1], I64), "w": random(3, 4, 3, 3)},
    ),
    "a mean with its padding": (
        [
            (
                "AveragePool",
                "x",
                "y",
                {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [2, 2], "count_include_pad": 1, "ceil_mode": 0},
            )
        ],
        {},
    ),
    "rounded up": ([("MaxPool", "x", "y", {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1})], {}),
    "rounded down": ([("MaxPool", "x", "y", {"kernel_shape": [3, 3], "strides": [2, 2]})], {}),
    "upwards": ([("Resize", "x  s", "y", {"mode": "nearest"})], {"s": np.array([1, 1, 2, 2], np.float32)}),
    "upwards, by axes": (
        [("Resize", "x   s", "y", {"mode": "nearest", "axes": [3, 2]})],
        {"s": np.array([12, 12], I64)},
        18,
    ),
    "no axes": (
        [("ReduceMean", "x", "a", {"noop_with_empty_axes": 1}), ("ReduceSum", "a", "y", {"noop_with_empty_axes": 1})],
        {},
        18,
    ),
    "largest pixels": ([("ReduceMax", "x", "y", {"axes": [-1, 2], "keepdims": 0})], {}),
    "a part that is not read": ([("Split", "x s", "a y", {"axis": 2})], {"s": np.array([2, 4], I64)}),
    "one element": (
        [("Gather", "x i", "a", {"axis": 1}), ("Gather", "a j", "b", {"axis": -1}), ("Gather", "b k", "y", {})],
        {"i": I64(-1), "j": np.array([2], I64), "k": np.array([0], I64)},
    ),
    "no elements dropped": ([("Dropout", "x r t", "y", {})], {"r": np.float32(0.3), "t": np.array(False)}),
    "tiles": ([("Tile", "x r", "y", {})], {"r": np.array([1, 2, 1, 3], I64)}),
    "double weights": (
        [("Conv", "x w v", "y", {"auto_pad": "SAME_UPPER"})],
        {"w": random(4, 4, 3, 3).astype(np.float32), "v": V},
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_operators_become_layers_that_compute_the_same(tmp_path, name):
    nodes, constants, *opset = GRAPHS[name]
    model = model_of(nodes, constants=constants, opset=opset[0] if opset else 17)
    if name.startswith("upwards"):
        model.graph.node[0].input[:] = nodes[0][1].split(" ")
    same_in_onnx_runtime(tmp_path, model, IMAGE)


def test_axes_of_older_opsets_are_attributes(tmp_path):
    nodes = [
        ("Unsqueeze", "x", "a", {"axes": [1]}),
        ("Squeeze", "a", "b", {"axes": [1]}),
        ("Split", "b", "c d", {"axis": 1, "split": [1, 3]}),
        ("ReduceSum", "d", "y", {"axes": [2, 3]}),
    ]
    model = model_of(nodes, opset=11)
    net, _ = net_and_values(load(_saved(tmp_path, model)))
    assert net.blobs["y"].shape == (1, 3, 1, 1)


def _saved(tmp_path, model):
    onnx.save(model, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_weights_with_one_initializer_stay_shared(tmp_path):
    weight = {"conv.weight": random(4, 4, 1, 1)}
    model = model_of([("Conv", "x conv.weight", "a", {}), ("Conv", "a conv.weight", "y", {})], constants=weight)
    net, values = net_and_values(load(_saved(tmp_path, model)))
    assert [layer.name for layer in net.layers] == ["x", "conv", "conv_2"] and len(net.params) == len(values) == 1


def test_weights_beside_the_model_are_read(tmp_path):
    model = model_of([("Conv", "x w", "y", {})], constants={"w": random(4, 4, 3, 3)})
    inside = load(_saved(tmp_path, model)).weights
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    beside = load(tmp_path / "m.onnx").weights
    assert np.array_equal(inside["n0"][1][0], beside["n0"][1][0])
    (tmp_path / "w.bin").unlink()
    with pytest.raises(InputError, match="has a tensor 'w' that cannot be read"):
        load(tmp_path / "m.onnx")


CONSTANTS = [
    *[(2, 3, 4, 5)[i:] for i in range(4)],
    *[tuple(size if keep else 1 for size, keep in zip((2, 3, 4, 5), kept)) for kept in product((0, 1), repeat=4)],
    (), (1,), (1, 1), (3, 1, 1), (3, 1, 5), (4, 1),
]  # fmt: skip


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("shape", dict.fromkeys(CONSTANTS), ids=str)
def test_a_constant_of_any_shape_is_broadcast_as_in_onnx(tmp_path, op, shape):
    constants = {"c": random(*shape) + 3}
    for operands in ("x c", "c x"):
        if op != "Div" or operands == "x c":
            same_in_onnx_runtime(
                tmp_path, model_of([(op, operands, "y", {})], (2, 3, 4, 5), constants=constants), (2, 3, 4, 5)
            )
    following = [("Mul", "x c", "a", {}), ("Add", "a c", "y", {})]
    same_in_onnx_runtime(tmp_path, model_of(following, (2, 3, 4, 5), constants=constants), (2, 3, 4, 5))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("size", [(9,), (6, 7), (4, 5, 6)])
def test_convolutions_have_any_number_of_axes(tmp_path, size, bias, transposed):
    kernel = (4, 3, *(2 + i for i in range(len(size))))
    weights = {"w": random(*((3, 4, *kernel[2:]) if transposed else kernel))} | ({"b": random(4)} if bias else {})
    attributes = {"strides": [1, 2, 1][: len(size)], "pads": [1, 0, 1][: len(size)] * 2}
    node = ("ConvTranspose" if transposed else "Conv", " ".join(["x", *weights]), "a", attributes)
    model = model_of([node, ("Relu", "a", "y", {})], (2, 3, *size), constants=weights)
    net = same_in_onnx_runtime(tmp_path, model, (2, 3, *size))
    assert len(net.blobs["y"].shape) == 2 + len(size)


# -- refusals ----------------------------------------------------------------------------------------------------------

CONV = {"w": random(4, 4, 3, 3)}
REFUSED = {
    "pads that differ": (
        [("Conv", "x w", "y", {"pads": [0, 0, 1, 1]})],
        CONV,
        r"node 'n0' \(Conv\) pads by \[0, 0\] before",
    ),
    "counts that differ": (
        [("AveragePool", "x", "y", {"kernel_shape": [3, 3], "pads": [1] * 4})],
        {},
        "counts other elements",
    ),
    "an operator": ([("Erf", "x", "y", {})], {}, r"node 'n0' \(Erf\) is an operator that layermem does not have"),
    "a value from nowhere": ([("Relu", "z", "y", {})], {}, "reads 'z', which no earlier node makes"),
    "a circle": ([("Add", "x b", "a", {}), ("Relu", "a", "b", {}), ("Relu", "b", "y", {})], {}, "reads 'b', which no"),
    "an attribute": ([("Conv", "x w", "y", {"strides": "two"})], CONV, "attribute 'strides' of another type"),
    "a number too large": (
        [("Elu", "x", "y", {}), ("Split", "y", "a b c", {"axis": 9})],
        {},
        "names axis 9 of a blob of 4",
    ),
    "a large constant": (
        [("ConstantOfShape", "s", "a", {}), ("Add", "x a", "y", {})],
        {"s": np.array([1 << 40], I64)},
        "a large constant",
    ),
    "a large blob": ([("Tile", "x r", "y", {})], {"r": np.array([1, 1, 1 << 20, 1 << 20], I64)}, "more than 2\\^31-1"),
    "a Pad alone": (
        [("Pad", "x p", "a", {}), ("Relu", "a", "y", {})],
        {"p": np.array([0, 0, 1, 1] * 2, I64)},
        "padded blob",
    ),
    "a resize": (
        [("Resize", "x s t", "y", {"mode": "cubic"})],
        {"s": np.float32([]), "t": np.float32([1, 1, 2, 2])},
        "resizes by cubic",
    ),
    "a product of blobs": ([("MatMul", "x x", "y", {})], {}, "takes a constant there"),
    "elements by index": (
        [("Gather", "x i", "y", {"axis": 1})],
        {"i": np.array([2, 0], I64)},
        "takes several elements of a blob by index",
    ),
    "elements dropped": (
        [("Dropout", "x r t", "y", {})],
        {"r": np.float32(0.3), "t": np.array(True)},
        "export the model for inference",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_nodes_that_caffe_cannot_express_are_refused_by_name(tmp_path, name):
    nodes, constants, says = REFUSED[name]
    with pytest.raises(InputError, match=says):
        load(_saved(tmp_path, model_of(nodes, constants=constants)))


def test_files_that_are_none_are_refused(tmp_path):
    path = _saved(tmp_path, model_of([("Relu", "x", "y", {})]))
    raw = path.read_bytes()
    for content in (b"", b"\xff" * 40, raw[: len(raw) // 2], b"name: 'net'"):
        path.write_bytes(content)
        with pytest.raises(
            InputError, match=r"m.onnx: (is truncated|has no nodes|is of opset|has the output|node|is empty)"
        ):
            load(path)
    for opset in (10, 22):
        with pytest.raises(InputError, match=f"is of opset {opset}; export it with opset 11 to 21"):
            load(_saved(tmp_path, model_of([("Relu", "x", "y", {})], opset=opset)))


def test_inputs_that_are_open_need_their_shape(tmp_path):
    model = model_of([("Relu", "x", "y", {})], shape=("N", 3, "H", "W"))
    with pytest.raises(InputError, match="leaves sizes of input 'x' open; give its shape"):
        load(_saved(tmp_path, model))
    assert load(tmp_path / "m.onnx", inputs={"x": (1, 3, 8, 9)}).net.layer[0].input_param.shape[0].dim == [1, 3, 8, 9]
    with pytest.raises(InputError, match="has no input 'z'; give one of: x"):
        load(tmp_path / "m.onnx", inputs={"z": (1,), "x": (1, 3, 8, 9)})


def test_a_tensor_of_more_elements_than_the_file_has_is_refused(tmp_path):
    model = model_of([("Conv", "x w", "y", {})], constants=CONV)
    model.graph.initializer[0].dims[0] = 1 << 30
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match="has a tensor 'w' that cannot be read"):
        load(path)


def test_every_importer_is_of_an_operator_that_onnx_has():
    known = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}
    assert known >= IMPORTERS.keys()
