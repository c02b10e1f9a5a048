"""Nets as ONNX models: each layer type in ONNX Runtime compared with layermem's kernels, whole nets, names,
refusals."""

import re
from contextlib import suppress
from itertools import product

import numpy as np
import onnx
import pytest

from layermem import api
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.integrations.onnx import export, export_model
from layermem.integrations.onnx.exporting import blob_names
from layermem.integrations.onnx.registry import EXPORTERS, REFUSED
from layermem.layers.base import LAYERS
from layermem.layers.composite import COMPOSITES
from layermem.layers.data import FEEDS
from layermem.proto.read import read_net_text
from layermem.proto.schema import TEST
from layermem.proto.weights import write_weights
from tests.cases import CASES
from tests.integrations.onnx.running import run_net, run_onnx, values_of
from tests.layers.harness import layer_of

LOSSES = {
    "SoftmaxWithLoss", "InfogainLoss", "SigmoidCrossEntropyLoss", "Accuracy", "EuclideanLoss", "SmoothL1Loss",
    "HingeLoss", "MultinomialLogisticLoss", "ContrastiveLoss", "MultiBoxLoss", "RegionLoss", "Yolov3",
}  # fmt: skip
WITHOUT_OUTPUT = {"Silence", "HDF5Output", "StateWrite"}
INPUT = 'layer {{ name: "{0}" type: "Input" top: "{0}" input_param {{ shape {{ {1} }} }} }}\n'


def compared(case) -> bool:
    """Whether both sides run the case: it has no epilogue, and is no part and no loss."""
    alone = not (case.relu or case.residual or case.normalized or case.saved or "input_param" in case.text)
    kind = re.search(r'type: "(\w+)"', case.text)
    alone = alone and "eta: " not in case.text  # is refused
    return alone and bool({"small", "medium"} & set(case.sizes)) and kind[1] in set(EXPORTERS) - LOSSES - WITHOUT_OUTPUT


def inputs_text(**shapes) -> str:
    return "".join(INPUT.format(name, " ".join(f"dim: {d}" for d in shape)) for name, shape in shapes.items())


def net_of(text: str, **shapes) -> Net:
    return Net(read_net_text(inputs_text(**shapes) + text), TEST)


def compare(net: Net, inputs, values=None, *, tolerance: float = 1e-4) -> dict[str, np.ndarray]:
    """Return the outputs of the model, compared with layermem's to `tolerance`, relative to each number or to 1."""
    values = values_of(net, np.random.default_rng(5)) if values is None else values
    theirs = run_onnx(export_model(net, values).model, inputs)
    ours = run_net(net, inputs, values)
    assert set(theirs) == set(ours)
    for name, value in theirs.items():
        assert value.shape == ours[name].shape
        worst = (abs(value - ours[name]) / np.maximum(1, abs(ours[name]))).max()
        assert worst <= tolerance, f"{name} is off by {worst:.1e}"
    return theirs


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if compared(case)])
def test_onnx_runtime_computes_every_layer_as_we_do(name):
    case = CASES[name]
    layer = case.layer("small")
    xs, _ = case.inputs(layer, np.random.default_rng(3))
    bottoms = "".join(f' bottom: "x{i}"' for i in range(len(xs)))
    tops = "" if "top:" in case.text else "".join(f' top: "y{i}"' for i in range(len(layer.tops)))
    net = net_of(
        f'layer {{ name: "it" {case.text}{bottoms}{tops} }}', **{f"x{i}": x.shape for i, x in enumerate(layer.bottoms)}
    )
    compare(net, {f"x{i}": x.astype(np.float32) for i, x in enumerate(xs)})


def convolution(settings: str, kind: str = "Convolution") -> str:
    return f'type: "{kind}" convolution_param {{ {settings} }}'


COMPOSED = {
    "clips": (convolution("num_output: 4 kernel_size: 3 pad: 1 stride: 2"), (2, 3, 4, 5, 3)),
    "clips, up": (convolution("num_output: 4 kernel_size: 2 stride: 3", "Deconvolution"), (1, 4, 2, 2, 2)),
    "signals": (convolution("num_output: 4 kernel_size: 3 stride: 2 group: 2"), (2, 4, 9)),
    "items in two axes": (convolution("num_output: 4 kernel_size: 2 axis: 2"), (2, 3, 4, 5, 3)),
    "points": (convolution("num_output: 3 axis: -1"), (2, 5)),
    "taps of clips": (convolution("kernel_size: 2 pad: 1 stride: 2", "Im2col"), (2, 3, 4, 4, 3)),
    "SPP": ('type: "SPP" spp_param { pyramid_height: 3 }', (2, 3, 7, 6)),
    "SPP of means": ('type: "SPP" spp_param { pyramid_height: 2 pool: AVE }', (2, 3, 7, 5)),
    "Interp of a part": ('type: "Interp" interp_param { zoom_factor: 2 pad_beg: -1 pad_end: -2 }', (1, 2, 7, 8)),
    "BN of a batch": ('type: "BN" bn_param { bn_mode: LEARN }', (3, 2, 4, 3)),
    "BatchNorm of a batch": ('type: "BatchNorm" batch_norm_param { use_global_stats: false }', (3, 2, 4, 3)),
    "a net of its own": ('type: "Softmax" softmax_param { axis: 2 }', (2, 3, 4)),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_layers_in_parts_and_of_other_ranks_are_computed_too(name):
    text, shape = COMPOSED[name]
    net = net_of(f'layer {{ name: "it" {text} bottom: "x" top: "y" }}', x=shape)
    compare(net, {"x": np.random.default_rng(2).standard_normal(shape).astype(np.float32)})


@pytest.mark.parametrize("method", ["MAX", "AVE"])
@pytest.mark.parametrize("size", [6, 7, 8])
def test_windows_at_the_border_are_caffes(method, size):
    """Tests every kernel, stride and pad: a mean divides by the number of elements in the padded image."""
    shape, layers = (1, 2, size, size + 1), []
    for kernel, stride in product((1, 2, 3, 5), (1, 2, 3)):
        for pad in range(min(kernel, 3)):
            window = f"pool: {method} kernel_size: {kernel} stride: {stride} pad_h: {pad} pad_w: {pad // 2}"
            text = f'name: "y{len(layers)}" type: "Pooling" bottom: "x" pooling_param {{ {window} }}'
            with suppress(InputError):  # a last window outside of the bottom
                layer_of(text, shape)
                layers.append(f'layer {{ {text} top: "y{len(layers)}" }}')
    x = np.random.default_rng(size).standard_normal(shape).astype(np.float32)
    outputs = compare(net_of("\n".join(layers), x=shape), {"x": x}, tolerance=1e-6)
    assert len(outputs) > 20


RECURRENT = 'layer {{ name: "it" type: "{}" bottom: "x" bottom: "cont" {} top: "y" recurrent_param {{ {} }} {} }}'


@pytest.mark.parametrize("kind, hidden", [("LSTM", False), ("RNN", True)])
def test_recurrent_layers_are_unrolled(kind, hidden):
    rng = np.random.default_rng(4)
    shapes = {"x": (4, 2, 5), "cont": (4, 2), **({"h": (1, 2, 3)} if hidden else {})}
    ends = ('bottom: "h"', 'top: "hT"') if hidden else ("", "")
    settings = f"num_output: 3 expose_hidden: {str(hidden).lower()}"
    net = net_of(RECURRENT.format(kind, ends[0], settings, ends[1]), **shapes)
    inputs = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    inputs["cont"] = np.array([[0, 0], [1, 1], [1, 0], [1, 1]], np.float32)
    compare(net, inputs)


# -- whole nets --------------------------------------------------------------------------------------------------------


def deployed(net: Net) -> Net:
    """The net with a Softmax instead of each loss, and an Input instead of its data."""
    message = type(net.message)()
    message.CopyFrom(net.message)
    kept = [layer for layer in message.layer if layer.type != "Accuracy"]
    losses = [layer for layer in kept if layer.type == "SoftmaxWithLoss"]
    for layer in kept:
        layer.ClearField("include")
        if layer in losses:
            layer.type, layer.top[:] = "Softmax", ["prob" if len(losses) == 1 else f"{layer.name}/prob"]
            del layer.bottom[1:], layer.loss_weight[:]
        elif layer.type in FEEDS:
            layer.type, layer.top[:] = "Input", ["data"]
            layer.input_param.shape.add(dim=net.blobs["data"].shape)
    del message.layer[:]
    message.layer.extend(kept)
    return Net(read_net_text(str(message)), TEST)


def filled(net: Net) -> dict[str, np.ndarray]:
    """Parameters of the size that MSRA's filler gives, with the averages of a trained net.

    Sums of shortcuts stay small, and so do the scores: no probability is near 1.
    """
    shortcuts = any(layer.type == "Eltwise" for layer in net.layers)
    rng, values = np.random.default_rng(0), {}
    for node in net.nodes:
        for i, (name, param) in enumerate(zip(node.params, node.layer.params)):
            value = rng.standard_normal(param.shape, np.float32) * np.sqrt(2 / max(1, np.prod(param.shape[1:])))
            if node.layer.type == "BatchNorm":
                value = (rng.standard_normal(param.shape), rng.uniform(2, 6, param.shape), np.full(1, 2.0))[i]
                value = value * 40 if i == 1 and shortcuts else value
            value = value / 20 if node.layer.type == "InnerProduct" else value
            values[name] = value.astype(np.float32)
    return values


@pytest.mark.samples(6)
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("digits", (3, 1, 8, 8)),
        ("squeezenet10", (1, 3, 67, 67)),
        ("mobilenet1", (1, 3, 224, 224)),
        pytest.param("googlenet", (1, 3, 224, 224), marks=pytest.mark.slow),
        pytest.param("resnet50", (1, 3, 224, 224), marks=pytest.mark.slow),
    ],
)
def test_whole_nets_give_our_probabilities_in_onnx_runtime(name, shape):
    net = api.build_net(f"prototxt/{name}/train_val.prototxt", "TEST", inputs={"data": shape})
    deploy, values = deployed(net), filled(net)
    exported = export_model(net, values)
    assert exported.notes == ["input 'label' is left out: no operator reads it"]
    inputs = {"data": np.random.default_rng(6).standard_normal(shape).astype(np.float32)}
    theirs, ours = run_onnx(exported.model, inputs), run_net(deploy, inputs, values)
    assert set(theirs) == set(ours) and ours
    for output, value in theirs.items():
        assert value.shape == ours[output].shape and abs(value - ours[output]).max() <= 1e-4 * value.max() < 1e-4
        assert value.argmax() == ours[output].argmax()


# -- names, batches, refusals ------------------------------------------------------------------------------------------

SMALL = """
layer { name: "conv" type: "Convolution" bottom: "data" top: "a" convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "relu" type: "ReLU" bottom: "a" top: "a" }
layer { name: "drop" type: "Dropout" bottom: "a" top: "a" }
layer { name: "ip" type: "InnerProduct" bottom: "a" top: "ip" inner_product_param { num_output: 3 } }
"""


def test_blobs_written_in_place_keep_caffes_name_for_the_last_version():
    net = net_of(
        SMALL.replace('top: "ip"', 'top: "b"') + 'layer { name: "s" type: "Silence" bottom: "b" }', data=(2, 3, 5, 5)
    )
    names = {"data": "data", "a": "a/1", "a'": "a/2", "a''": "a", "b": "b"}
    assert blob_names(net) == names


def test_with_any_batch_one_model_takes_them_all():
    net = net_of(SMALL, data=(2, 3, 5, 5))
    values = values_of(net, np.random.default_rng(0))
    model = export_model(net, values, any_batch=True).model
    x = np.random.default_rng(1).standard_normal((5, 3, 5, 5)).astype(np.float32)
    ours = run_net(net_of(SMALL, data=x.shape), {"data": x}, values)["ip"]
    assert abs(run_onnx(model, {"data": x})["ip"] - ours).max() < 1e-5
    assert [d.dim_param for d in model.graph.output[0].type.tensor_type.shape.dim] == ["N", ""]


def test_a_layer_that_depends_on_the_batch_is_named():
    text = 'layer { name: "turn" type: "Reshape" bottom: "x" top: "y" reshape_param { shape { dim: 3 dim: 2 } } }'
    net = net_of(text, x=(2, 3))
    export_model(net, {})
    with pytest.raises(InputError, match=r"layer 'turn' .*change shape"):
        export_model(net, {}, any_batch=True)
    wide = 'layer { name: "turn" type: "Permute" bottom: "x" top: "y" permute_param { order: 1 order: 0 } }\n'
    wide += (
        'layer { name: "flat" type: "Reshape" bottom: "y" top: "z" reshape_param { shape { dim: 3 dim: 1 dim: -1 } } }'
    )
    with pytest.raises(InputError, match="layer 'flat' depends on the size of the batch"):
        export_model(net_of(wide, x=(2, 3)), {}, any_batch=True)


def test_the_rows_are_of_types_that_exist_and_a_type_without_a_row_is_refused(monkeypatch):
    assert set(EXPORTERS) | set(REFUSED) <= set(LAYERS) | set(COMPOSITES)
    net = net_of('layer { name: "new" type: "Swish" bottom: "x" top: "y" }', x=(2, 3))
    monkeypatch.delitem(EXPORTERS, "Swish")
    with pytest.raises(InputError, match="layer 'new' has type 'Swish', which has no form in ONNX; remove it, or"):
        export_model(net, {})


DETECTION = 'layer {{ name: "out" type: "DetectionOutput" bottom: "l" bottom: "s" bottom: "p" top: "y" {} }}'


@pytest.mark.parametrize("settings", ["", "keep_top_k: 7", "share_location: false keep_top_k: 40 clip: true"])
def test_detections_of_several_items_with_equal_scores_have_the_rows_of_layermem(settings):
    rng, items, priors, classes = np.random.default_rng(1), 3, 20, 4
    nms = "nms_param { nms_threshold: 0.3 top_k: 6 } confidence_threshold: 0.4"
    block = f"num_classes: {classes} code_type: CENTER_SIZE {nms} {settings}"
    corners = rng.random((priors, 2)) * 0.6
    boxes = np.concatenate([corners, corners + 0.3], axis=1).ravel()
    arrays = {
        "l": rng.standard_normal((items, priors * 4 * (classes if "false" in settings else 1))),
        "s": rng.integers(0, 5, (items, priors * classes)) / 4,
        "p": np.stack([boxes, np.full(priors * 4, 0.1)])[None],
    }
    arrays["s"][1] = 0.25  # an item without boxes
    net = net_of(
        DETECTION.format(f"detection_output_param {{ {block} }}"), **{name: x.shape for name, x in arrays.items()}
    )
    (rows,) = compare(net, {name: x.astype(np.float32) for name, x in arrays.items()}, tolerance=1e-6).values()
    assert set(rows[..., 0].ravel()) == {0, 2, -1}


def test_an_eta_that_lowers_the_threshold_is_refused():
    block = "detection_output_param {{ num_classes: 2 nms_param {{ nms_threshold: {} eta: 0.9 }} }}"
    shapes = {"l": (1, 8), "s": (1, 4), "p": (1, 2, 8)}
    export_model(net_of(DETECTION.format(block.format(0.5)), **shapes), {})  # it does nothing at 0.5 and below
    with pytest.raises(InputError, match=r"layer 'out' lowers its nms_threshold, 0\.6, by eta"):
        export_model(net_of(DETECTION.format(block.format(0.6)), **shapes), {})


def test_layers_that_onnx_cannot_express_are_refused_by_name_and_nothing_is_written(tmp_path):
    text = SMALL + ('layer { name: "keep" type: "Filter" bottom: "ip" bottom: "s" top: "f" }')
    net = net_of(text, data=(2, 3, 5, 5), s=(2,))
    with pytest.raises(InputError, match="layer 'keep' has type 'Filter', which makes a number of items that depends"):
        export(net, tmp_path / "m.onnx", tmp_path / "none.caffemodel")
    assert not [*tmp_path.iterdir()]


def test_weights_come_from_files_and_must_be_there(tmp_path):
    net = net_of(SMALL, data=(2, 3, 5, 5))
    values = values_of(net, np.random.default_rng(0))
    layers = {
        "conv": ("Convolution", [values["conv.w0"], values["conv.w1"]]),
        "other": ("Scale", [np.ones(2, np.float32)]),
    }
    write_weights(tmp_path / "a.caffemodel", "net", layers)
    with pytest.raises(InputError, match="layer 'ip' has no blobs in the weights"):
        export(net, tmp_path / "m.onnx", tmp_path / "a.caffemodel")
    assert not (tmp_path / "m.onnx").exists()
    write_weights(tmp_path / "b.npz", "net", {"ip": ("InnerProduct", [values["ip.w0"], values["ip.w1"]])})
    notes = export(net, tmp_path / "m.onnx", [tmp_path / "a.caffemodel", tmp_path / "b.npz"])
    assert notes == ["layer 'other' of the weights is not in the net"]
    model = onnx.load(tmp_path / "m.onnx")
    kept = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}
    assert all(np.array_equal(kept[name], value) for name, value in values.items())


def test_a_train_net_is_refused():
    with pytest.raises(InputError, match="is a net of phase TRAIN"):
        export_model(api.build_net("prototxt/digits/train_val.prototxt", "TRAIN"), {})


def test_a_net_of_training_is_written_in_its_deploy_form(tmp_path):
    """Auxiliary classifiers and labels are left out, and weights of their layers may be absent."""
    text = SMALL + (
        'layer { name: "aux" type: "InnerProduct" bottom: "a" top: "b" inner_product_param { num_output: 3 } }\n'
        'layer { name: "aux_loss" type: "SoftmaxWithLoss" bottom: "b" bottom: "label" top: "l1" loss_weight: 0.3 }\n'
        'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "l2" }\n'
    )
    net = net_of(text, data=(2, 3, 5, 5), label=(2,))
    values = values_of(net, np.random.default_rng(0))
    layers = {name: ("", [values[f"{name}.w0"], values[f"{name}.w1"]]) for name in ("conv", "ip")}
    write_weights(tmp_path / "w.caffemodel", "net", layers)
    assert export(net, tmp_path / "m.onnx", tmp_path / "w.caffemodel") == []
    graph = onnx.load(tmp_path / "m.onnx").graph
    assert [each.name for each in graph.input] == ["data"] and [each.name for each in graph.output] == ["prob"]
