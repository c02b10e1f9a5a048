"""The cpu device against the reference: every op of every layer, written and added, on buffers side by side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from layermem._native import cpu
from layermem.backends.arena import Arena
from layermem.backends.cpu import CpuDevice
from layermem.backends.cpu.base import MAX_ARRAYS, cpu_kernels
from layermem.backends.reference import ReferenceDevice
from layermem.backends.reference.base import REGISTRY
from layermem.errors import InputError
from layermem.graph.fusion import BatchNormScale, Epilogue
from layermem.graph.ops import Op
from layermem.layers.base import LAYERS, Layer, Overlay, Step
from layermem.ops import CopyOut, GradientNorm
from tests.layers.harness import Run, layer_of, logical, with_saved

IMAGE = (2, 6, 7, 5)
CASES = {
    "conv": ('type: "Convolution" convolution_param { num_output: 4 kernel_size: 3 pad: 1 stride: 2 }', IMAGE),
    "conv groups": (
        'type: "Convolution" convolution_param { num_output: 4 kernel_size: 3 group: 2 dilation: 2 pad: 2 }', IMAGE
    ),
    "conv 1x1": ('type: "Convolution" convolution_param { num_output: 8 kernel_size: 1 bias_term: false }', IMAGE),
    "depthwise": ('type: "Convolution" convolution_param { num_output: 6 kernel_h: 3 kernel_w: 1 group: 6 }', IMAGE),
    "conv twice": (
        'type: "Convolution" top: "a" top: "b" convolution_param { num_output: 4 kernel_size: 3 }', IMAGE, IMAGE
    ),
    "deconv": ('type: "Deconvolution" convolution_param { num_output: 4 kernel_size: 3 stride: 2 pad: 1 }', IMAGE),
    "deconv groups": ('type: "Deconvolution" convolution_param { num_output: 4 kernel_size: 2 group: 2 }', IMAGE),
    "inner product": ('type: "InnerProduct" inner_product_param { num_output: 9 }', IMAGE),
    "inner product 2d": ('type: "InnerProduct" inner_product_param { num_output: 9 }', (5, 11)),
    "inner product over channels": ('type: "InnerProduct" inner_product_param { num_output: 9 axis: 2 }', IMAGE),
    "inner product over rows": ('type: "InnerProduct" inner_product_param { num_output: 9 axis: 3 }', IMAGE),
    "inner product into an image": ('type: "InnerProduct" inner_product_param { num_output: 9 axis: 3 }', (4, 6, 1, 1)),
    "inner product from five axes": (
        'type: "InnerProduct" inner_product_param { num_output: 9 axis: 3 }', (2, 3, 4, 5, 6)
    ),
    "inner product of an image turned": (
        'type: "InnerProduct" inner_product_param { num_output: 9 transpose: true bias_term: false }', IMAGE
    ),
    "inner product turned": ('type: "InnerProduct" inner_product_param { num_output: 9 transpose: true }', (5, 11)),
    "max pool": ('type: "Pooling" pooling_param { kernel_size: 3 stride: 2 pad: 1 }', IMAGE),
    "ave pool": ('type: "Pooling" pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }', IMAGE),
    "global pool": ('type: "Pooling" pooling_param { pool: AVE global_pooling: true }', IMAGE),
    "conv of many channels": (
        'type: "Convolution" convolution_param { num_output: 33 kernel_size: 3 pad: 1 }', (2, 36, 17, 13)
    ),
    "conv of many channels in groups": (
        'type: "Convolution" convolution_param { num_output: 80 kernel_size: 3 pad: 1 group: 2 }', (2, 72, 17, 13)
    ),
    "relu": ('type: "ReLU"', IMAGE),
    "leaky relu": ('type: "ReLU" relu_param { negative_slope: 0.1 }', (3, 7)),
    "sigmoid": ('type: "Sigmoid"', IMAGE),
    "tanh": ('type: "TanH"', IMAGE),
    "elu": ('type: "ELU"', IMAGE),
    "absval": ('type: "AbsVal"', IMAGE),
    "power": ('type: "Power" power_param { power: 2 scale: 0.5 shift: 3 }', IMAGE),
    "power of one": ('type: "Power" power_param { scale: 0.5 shift: 3 }', IMAGE),
    "exp": ('type: "Exp" exp_param { base: 2 scale: 0.5 }', IMAGE),
    "bnll": ('type: "BNLL"', IMAGE),
    "clip": ('type: "Clip" clip_param { min: -0.5 max: 0.7 }', IMAGE),
    "swish": ('type: "Swish" swish_param { beta: 0.7 }', IMAGE),
    "threshold": ('type: "Threshold" threshold_param { threshold: 0.2 }', IMAGE),
    "prelu": ('type: "PReLU"', IMAGE),
    "prelu shared": ('type: "PReLU" prelu_param { channel_shared: true }', IMAGE),
    "dropout": ('type: "Dropout" dropout_param { dropout_ratio: 0.3 }', IMAGE),
    "lrn": ('type: "LRN" lrn_param { local_size: 5 alpha: 0.3 }', IMAGE),
    "lrn within": ('type: "LRN" lrn_param { local_size: 3 alpha: 0.3 norm_region: WITHIN_CHANNEL }', IMAGE),
    "batch norm": ('type: "BatchNorm"', IMAGE),
    "batch norm 2d": ('type: "BatchNorm"', (9, 4)),
    "batch norm global": ('type: "BatchNorm" batch_norm_param { use_global_stats: true }', IMAGE),
    "scale": ('type: "Scale" scale_param { bias_term: true }', IMAGE),
    "scale all": ('type: "Scale" scale_param { axis: 1 num_axes: -1 }', IMAGE),
    "scale by bottom": ('type: "Scale" scale_param { axis: 1 }', IMAGE, (6,)),
    "scale one number": ('type: "Scale" scale_param { num_axes: 0 bias_term: true }', IMAGE),
    "scale images": ('type: "Scale" scale_param { axis: 0 num_axes: 1 bias_term: true }', IMAGE),
    "scale images and channels": ('type: "Scale" scale_param { axis: 0 }', IMAGE, (2, 6)),
    "scale channels and rows": ('type: "Scale" scale_param { axis: 1 num_axes: 2 bias_term: true }', IMAGE),
    "scale all but columns": ('type: "Scale" scale_param { axis: 0 num_axes: 3 bias_term: true }', IMAGE),
    "scale rows": ('type: "Scale" scale_param { axis: 2 num_axes: 1 bias_term: true }', IMAGE),
    "scale pixels": ('type: "Scale" scale_param { axis: 2 num_axes: 2 }', IMAGE),
    "scale everything": ('type: "Scale" scale_param { axis: 0 num_axes: -1 bias_term: true }', IMAGE),
    "scale three axes": ('type: "Scale" scale_param { axis: 2 bias_term: true }', (3, 4, 5)),
    "bias": ('type: "Bias"', IMAGE),
    "bias by bottom": ('type: "Bias" bias_param { axis: 0 }', IMAGE, (2, 6)),
    "bias all": ('type: "Bias" bias_param { axis: 1 num_axes: -1 }', IMAGE),
    "eltwise sum": ('type: "Eltwise" eltwise_param { coeff: 1 coeff: -0.5 }', IMAGE, IMAGE),
    "eltwise prod": ('type: "Eltwise" eltwise_param { operation: PROD }', IMAGE, IMAGE, IMAGE),
    "eltwise max": ('type: "Eltwise" eltwise_param { operation: MAX }', IMAGE, IMAGE),
    "concat": ('type: "Concat"', IMAGE, (2, 3, 7, 5)),
    "concat rows": ('type: "Concat" concat_param { axis: 2 }', IMAGE, (2, 6, 2, 5)),
    "slice": ('type: "Slice" top: "a" top: "b" slice_param { slice_point: 2 }', IMAGE),
    "split": ('type: "Split" top: "a" top: "b"', IMAGE),
    "flatten": ('type: "Flatten"', IMAGE),
    "reshape": ('type: "Reshape" reshape_param { shape { dim: 2 dim: 3 dim: 7 dim: 10 } }', (2, 210)),
    "reshape between images": ('type: "Reshape" reshape_param { shape { dim: 2 dim: 3 dim: 7 dim: 10 } }', IMAGE),
    "log": ('type: "Log" log_param { base: 2 scale: 0.1 shift: 3 }', IMAGE),
    "flatten view": ('type: "Flatten"', (3, 5, 1, 1)),
    "softmax": ('type: "Softmax"', IMAGE),
    "crop": ('type: "Crop" crop_param { offset: 1 }', IMAGE, (2, 6, 5, 3)),
    "interp": ('type: "Interp" interp_param { height: 9 width: 8 }', IMAGE),
    "tile": ('type: "Tile" tile_param { tiles: 3 }', IMAGE),
    "tile images": ('type: "Tile" tile_param { axis: 0 tiles: 2 }', IMAGE),
    "tile rows": ('type: "Tile" tile_param { axis: 2 tiles: 65 }', (2, 3, 1, 4)),
    "tile one number": ('type: "Tile" tile_param { axis: 1 tiles: 40 }', (7, 1)),
    "silence": ('type: "Silence"', IMAGE),
    **{
        f"{operation} from axis {axis}": (
            f'type: "Reduction" reduction_param {{ operation: {operation} axis: {axis} coeff: 0.7 }}', IMAGE
        )
        for operation in ("SUM", "MEAN", "ASUM", "SUMSQ") for axis in (0, 1, 2, 3)
    },
    "sum of long rows": ('type: "Reduction" reduction_param { axis: 1 }', (3, 40001)),
    "argmax": ('type: "ArgMax"', (5, 40)),
    "argmax top 3": ('type: "ArgMax" argmax_param { axis: 1 top_k: 3 }', IMAGE),
    "argmax of rows": ('type: "ArgMax" argmax_param { axis: 2 top_k: 7 out_max_val: true }', IMAGE),
    "argmax of images": ('type: "ArgMax" argmax_param { top_k: 4 out_max_val: true }', IMAGE),
    "argmax of images, places": ('type: "ArgMax" argmax_param { top_k: 1 }', IMAGE),
    "accuracy": ('type: "Accuracy" accuracy_param { top_k: 2 }', (9, 5), (9,)),
    "accuracy by class": (
        'type: "Accuracy" top: "a" top: "c" accuracy_param { ignore_label: 1 }', IMAGE, (2, 1, 7, 5)
    ),
    "accuracy along columns": ('type: "Accuracy" top: "a" top: "c" accuracy_param { axis: 3 }', IMAGE, (2, 6, 7)),
    "euclidean in another order": ('type: "EuclideanLoss"', IMAGE, (2, 210)),
    "euclidean between two orders": ('type: "EuclideanLoss"', IMAGE, (2, 5, 6, 7)),
    "sigmoid loss in another order": ('type: "SigmoidCrossEntropyLoss"', (2, 210), IMAGE),
    "softmax loss of labels in another order": (
        'type: "SoftmaxWithLoss" softmax_param { axis: 2 }', IMAGE, (2, 6, 5)
    ),
    "hinge": ('type: "HingeLoss"', (5, 40), (5,)),
    "hinge of images": ('type: "HingeLoss" hinge_loss_param { norm: L2 }', IMAGE, (2,)),
    "multinomial": ('type: "MultinomialLogisticLoss"', IMAGE, (2,)),
    "contrastive": ('type: "ContrastiveLoss" contrastive_loss_param { margin: 6 }', (8, 20), (8, 20), (8,)),
    "contrastive of old": (
        'type: "ContrastiveLoss" contrastive_loss_param { margin: 36 legacy_version: true }', (8, 20), (8, 20), (8,)
    ),
    "euclidean": ('type: "EuclideanLoss"', (4, 6), (4, 6)),
    "sigmoid loss": ('type: "SigmoidCrossEntropyLoss"', IMAGE, IMAGE),
    "softmax loss": ('type: "SoftmaxWithLoss"', (5, 4), (5,)),
    "softmax loss ignoring": ('type: "SoftmaxWithLoss" loss_param { ignore_label: 1 }', IMAGE, (2, 1, 7, 5)),
}  # fmt: skip


CLASSES = ("SoftmaxWithLoss", "Accuracy", "HingeLoss", "MultinomialLogisticLoss")  # x1 names classes
TARGETS = ("EuclideanLoss", "ContrastiveLoss")  # losses whose second bottom gets a gradient


@pytest.fixture(params=cpu.vector_units(), autouse=True)
def unit(request):
    cpu.set_vector_unit(request.param)
    yield request.param
    cpu.set_vector_unit("auto")


@pytest.fixture(autouse=True)
def native_only(monkeypatch):
    """No op of the cpu device may run on the reference's kernel here."""
    bind = ReferenceDevice.bind

    def refuse(self, op, arrays, context):
        assert type(self) is ReferenceDevice, f"{op.kernel} has no native kernel for {op.layer.param}"
        return bind(self, op, arrays, context)

    monkeypatch.setattr(ReferenceDevice, "bind", refuse)


def arguments(layer: Layer) -> Run:
    rng = np.random.default_rng(5)
    run = Run(layer, dtype="float32")
    for stem, tensors in (("x", layer.bottoms), ("w", [p.tensor for p in layer.params]), ("dy", layer.tops)):
        for i, tensor in enumerate(tensors):
            value = rng.standard_normal(tensor.shape)
            if layer.type.startswith("BatchNorm") and stem == "w":
                value = abs(value) + 1
            run.put(f"{stem}{i}", value)
    if layer.type in CLASSES:
        run.put("x1", rng.integers(0, layer.classes, layer.bottoms[1].shape))
    elif layer.type in ("SigmoidCrossEntropyLoss", "ContrastiveLoss"):
        run.put(f"x{len(layer.bottoms) - 1}", rng.integers(0, 2, layer.bottoms[-1].shape))
    if layer.type == "MultinomialLogisticLoss":
        run.put("x0", rng.random(layer.bottoms[0].shape) + 0.01)
    return run


def stored(array: np.ndarray) -> np.ndarray:
    return array.transpose(0, 2, 3, 1) if array.ndim == 4 else array


def execute(
    device, run: Run, step: Step, adds: tuple[str, ...], overlays: tuple[Overlay, ...] = ()
) -> dict[str, np.ndarray]:
    """Run one op on copies of the arrays, each on its own 256 bytes of an arena, or an output over an input; what it
    wrote or changed."""
    rng = np.random.default_rng(9)
    layer, changed = run.layer, (*step.writes, *step.updates)
    roles = dict.fromkeys((*step.reads, *changed))
    record = step.record or layer.record
    workspace = device.workspace_bytes(record, step.step, roles)
    arrays: dict[str, np.ndarray] = {}
    arena = Arena(sum(256 + 256 * (run.tensor(role).nbytes // 256 + 1) for role in roles) + workspace, poison=True)
    offset = 0
    for role in roles:
        source = rng.standard_normal(run.tensor(role).shape).astype("float32") if role in adds else run.arrays.get(role)
        array = arena.view(offset, run.tensor(role))
        if source is not None and (role not in step.writes or role in adds):
            array[...] = stored(source)
        arrays[role] = array
        offset += 256 * (run.tensor(role).nbytes // 256 + 1) + 256
    for overlay in overlays:
        arrays[overlay.out] = arrays[overlay.over].reshape(arrays[overlay.out].shape)
    arrays["workspace"] = arena.span(offset, workspace)
    op = Op(layer.name, "forward", record, step.step, {}, (), (), accumulates=adds, layer_name=layer.name)
    device.bind(op, arrays, {"seed": 7, "step": 3})()
    results = {}
    for role in changed:
        results[role] = logical(run.tensor(role), "float32")
        stored(results[role])[...] = arrays[role]
    return results


def fused_layer(relu: bool) -> Layer:
    norm = layer_of('type: "BatchNorm" name: "n"', IMAGE)
    scale = layer_of('type: "Scale" name: "s" scale_param { bias_term: true }', IMAGE)
    return BatchNormScale(norm, scale, layer_of('type: "ReLU" name: "r"', IMAGE) if relu else None)


@pytest.mark.parametrize("relu", [True, False])
def test_a_fused_op_gives_what_the_reference_gives(relu):
    compare(fused_layer(relu), ["dx0", "dw3", "dw4"])


RECTIFIED = (
    "conv", "conv groups", "conv 1x1", "depthwise", "conv of many channels", "inner product",
    "inner product over channels", "inner product of an image turned", "eltwise sum",
)  # fmt: skip


@pytest.mark.parametrize("kept", [frozenset(), frozenset({"y0"})])
@pytest.mark.parametrize("case", RECTIFIED)
def test_a_layer_fused_with_its_relu_gives_what_the_reference_gives(case, kept):
    text, *shapes = CASES[case]
    inner = layer_of(text, *shapes)
    layer = Epilogue(inner, None, 0, layer_of('type: "ReLU" name: "r"', inner.tops[0].shape))
    with_saved(layer, kept)
    compare(layer, [f"dx{i}" for i in range(len(shapes))] + [f"dw{i}" for i in range(len(layer.params))])


@pytest.mark.parametrize("case", CASES)
def test_an_op_gives_what_the_reference_gives(case):
    text, *shapes = CASES[case]
    layer = layer_of(text, *shapes)
    wants = [f"dx{i}" for i in range(len(shapes))]
    if layer.type.endswith("Loss"):
        wants = ["dx0", "dx1"] if layer.type in TARGETS else ["dx0"]
    compare(layer, wants + [f"dw{i}" for i, p in enumerate(layer.params) if p.learned])


def compare(layer: Layer, wants: list[str]) -> None:
    run = arguments(layer)
    for step in [layer.forward(), layer.recompute(), *layer.backward(wants)]:
        backward = step.step not in ("forward", "recompute")
        for adds in ((), tuple(step.writes)) if backward else ((),):
            expected = execute(ReferenceDevice(), run, step, adds)
            found = execute(CpuDevice(), run, step, adds)
            for role, value in expected.items():
                near = 2e-6 * max(10.0, abs(value).max())  # long sums of large terms end in small ones too
                np.testing.assert_allclose(
                    found[role], value, rtol=2e-5, atol=near, err_msg=f"{step.step} {role} {adds}"
                )
            if adds:
                continue
            for overlays in overlaid(step):
                on_top = execute(CpuDevice(), run, step, (), overlays)
                for role, value in found.items():
                    np.testing.assert_array_equal(on_top[role], value, err_msg=f"{step.step} {role} with {overlays}")
            run.arrays.update(expected)


def overlaid(step: Step) -> list[tuple[Overlay, ...]]:
    """Every overlay that a step permits, alone, and as many of them as may be taken together."""
    together: list[Overlay] = []
    for overlay in step.overlays:
        if all({overlay.out, overlay.over}.isdisjoint({other.out, other.over}) for other in together):
            together.append(overlay)
    several = [tuple(together)] if len(together) > 1 else []
    return [] if step.updates else [*((overlay,) for overlay in step.overlays), *several]


def test_the_cpu_backend_has_every_kernel_of_the_reference():
    """The reference kernel runs only an Eltwise or a Split of more arrays than one native op combines."""
    assert cpu_kernels.names() == REGISTRY.names()
    assert MAX_ARRAYS == 256


@pytest.mark.parametrize("count", [MAX_ARRAYS, MAX_ARRAYS + 1])
def test_the_reference_kernel_combines_more_arrays_than_a_native_one(count, monkeypatch):
    left = set()
    monkeypatch.setattr(ReferenceDevice, "bind", lambda self, op, arrays, context: left.add(op.kernel) or (lambda: 0))
    shapes = [(3,)] * count
    layers = [layer_of(f'type: "Eltwise" eltwise_param {{ operation: {o} }}', *shapes) for o in ("SUM", "PROD", "MAX")]
    layers += [
        Epilogue(layers[0], None, 0, layer_of('type: "ReLU"', (3,))),
        layer_of('type: "Split"' + ' top: "t"' * count, (3,)),
    ]
    for layer in layers:
        run = arguments(layer)
        for step in [layer.forward(), *layer.backward([f"dx{i}" for i in range(len(layer.bottoms))])]:
            execute(CpuDevice(), run, step, ())
            run.arrays |= {role: logical(run.tensor(role), "float32") for role in step.writes if role[0] != "d"}
    kinds = ["Eltwise.forward", "Eltwise.backward", "Split.backward"]
    assert left == (set(kinds) if count > MAX_ARRAYS else set())


def test_every_type_of_layer_is_among_these_cases():
    seen = {layer_of(text, *shapes).type for text, *shapes in CASES.values()}
    assert seen == set(LAYERS)


@pytest.mark.parametrize("case", ["split", "eltwise sum"])
def test_gradients_that_meet_are_added(case):
    text, *shapes = CASES[case]
    layer = layer_of(text, *shapes)
    compare(layer, [f"dx{i}" for i in range(len(shapes))])


@pytest.mark.parametrize("fused", [False, True])
def test_statistics_that_no_backward_reads_are_in_the_workspace(fused):
    layer = fused_layer(True) if fused else layer_of('type: "BatchNorm"', IMAGE)
    step = layer.forward()
    bare = replace(step, writes=("y0",))
    run = arguments(layer)
    expected, found = execute(CpuDevice(), run, step, ()), execute(CpuDevice(), run, bare, ())
    for role in ("y0", "w0", "w1", "w2"):
        np.testing.assert_array_equal(found[role], expected[role])


def test_an_output_goes_to_the_host_with_caffes_axes():
    layer = layer_of('type: "ReLU"', IMAGE)
    run, results = arguments(layer), {}
    for _ in range(2):  # into a new array each time
        blob = np.ascontiguousarray(stored(run.arrays["x0"]))
        op = Op("out", "forward", CopyOut("blob"), "forward", {}, (), ())
        CpuDevice().bind(op, {"x0": blob}, {"results": results})()
        np.testing.assert_array_equal(results["blob"], run.arrays["x0"])
        assert results["blob"].flags.c_contiguous and not np.shares_memory(results["blob"], blob)


def test_the_norm_of_gradients_runs_over_all_of_them():
    rng = np.random.default_rng(3)
    arrays = {
        f"x{i}": rng.standard_normal(n).astype("float32") for i, n in enumerate((3, 40000, 1, 7, 70000, *[2] * 8))
    }
    norms = []
    for device in (ReferenceDevice(), CpuDevice()):
        norm = np.zeros((), "float32")
        device.bind(Op("clip", "update", GradientNorm(), "forward", {}, (), ()), {**arrays, "y0": norm}, {})()
        norms.append(float(norm))
    assert abs(norms[1] / norms[0] - 1) < 1e-6


@pytest.mark.parametrize("kind", ["Accuracy", "HingeLoss", "MultinomialLogisticLoss", "SoftmaxWithLoss"])
def test_a_label_that_is_no_class_names_the_layer(kind):
    layer = layer_of(f'type: "{kind}" name: "judge"', (2, 3), (2,))
    run = arguments(layer)
    run.put("x1", np.array([0, 3]))
    with pytest.raises(InputError, match=r"(?s)judge.*label 3.*0 to 2"):
        execute(CpuDevice(), run, layer.forward(), ())
