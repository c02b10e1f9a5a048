"""The cpu device against the reference: every op of every layer, written and added, on buffers side by side."""

from __future__ import annotations

import numpy as np
import pytest

from layermem._native import cpu
from layermem.graph.ops import Op
from layermem.layers.base import Layer, Step
from layermem.layers.fused import BatchNormScale, Rectified
from layermem.runtime.arena import Arena
from layermem.runtime.cpu import CpuDevice
from layermem.runtime.cpu.base import BINDINGS
from layermem.runtime.reference import ReferenceDevice
from tests.layers.harness import Run, layer_of, logical

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
    "bias": ('type: "Bias"', IMAGE),
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
    "euclidean": ('type: "EuclideanLoss"', (4, 6), (4, 6)),
    "sigmoid loss": ('type: "SigmoidCrossEntropyLoss"', IMAGE, IMAGE),
    "softmax loss": ('type: "SoftmaxWithLoss"', (5, 4), (5,)),
    "softmax loss ignoring": ('type: "SoftmaxWithLoss" loss_param { ignore_label: 1 }', IMAGE, (2, 1, 7, 5)),
}  # fmt: skip


@pytest.fixture(params=cpu.vector_units(), autouse=True)
def unit(request):
    cpu.set_vector_unit(request.param)
    yield request.param
    cpu.set_vector_unit("auto")


def arguments(layer: Layer) -> Run:
    rng = np.random.default_rng(5)
    run = Run(layer, dtype="float32")
    for stem, tensors in (("x", layer.bottoms), ("w", [p.tensor for p in layer.params]), ("dy", layer.tops)):
        for i, tensor in enumerate(tensors):
            value = rng.standard_normal(tensor.shape)
            if layer.type.startswith("BatchNorm") and stem == "w":
                value = abs(value) + 1
            run.put(f"{stem}{i}", value)
    if layer.type.endswith("Loss") and layer.type != "EuclideanLoss":
        run.put(
            "x1", rng.integers(0, 2 if layer.type[0] == "S" and layer.type[1] == "i" else 3, layer.bottoms[1].shape)
        )
    return run


def stored(array: np.ndarray) -> np.ndarray:
    return array.transpose(0, 2, 3, 1) if array.ndim == 4 else array


def execute(device, run: Run, step: Step, adds: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Run one op on copies of the arrays, each on its own 256 bytes of an arena; what it wrote or changed."""
    rng = np.random.default_rng(9)
    layer, changed = run.layer, (*step.writes, *step.updates)
    roles = dict.fromkeys((*step.reads, *changed))
    name = f"{layer.type}.{step.step}"
    scratch = device.workspace(name, layer, roles, adds)
    arrays: dict[str, np.ndarray] = {}
    arena = Arena(sum(256 + 256 * (run.tensor(role).nbytes // 256 + 1) for role in roles) + scratch, poison=True)
    offset = 0
    for role in roles:
        source = rng.standard_normal(run.tensor(role).shape).astype("float32") if role in adds else run.arrays.get(role)
        array = arena.view(offset, run.tensor(role))
        if source is not None and (role not in step.writes or role in adds):
            array[...] = stored(source)
        arrays[role] = array
        offset += 256 * (run.tensor(role).nbytes // 256 + 1) + 256
    arrays["workspace"] = arena.span(offset, scratch)
    op = Op(name, "forward", name, layer, {}, (), (), accumulates=adds)
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


RECTIFIED = ("conv", "conv groups", "conv 1x1", "depthwise", "conv of many channels", "inner product", "eltwise sum")


@pytest.mark.parametrize("kept", [frozenset(), frozenset({"y0"})])
@pytest.mark.parametrize("case", RECTIFIED)
def test_a_layer_fused_with_its_relu_gives_what_the_reference_gives(case, kept):
    text, *shapes = CASES[case]
    inner = layer_of(text, *shapes)
    layer = Rectified(inner, layer_of('type: "ReLU" name: "r"', inner.tops[0].shape))
    layer.kept = kept
    compare(layer, [f"dx{i}" for i in range(len(shapes))] + [f"dw{i}" for i in range(len(layer.params))])


@pytest.mark.parametrize("case", CASES)
def test_an_op_gives_what_the_reference_gives(case):
    text, *shapes = CASES[case]
    layer = layer_of(text, *shapes)
    wants = [f"dx{i}" for i in range(len(shapes))]
    if layer.type in ("SoftmaxWithLoss", "SigmoidCrossEntropyLoss"):
        wants = ["dx0"]
    compare(layer, wants + [f"dw{i}" for i, p in enumerate(layer.params) if p.learned])


def compare(layer: Layer, wants: list[str]) -> None:
    run = arguments(layer)
    for step in [layer.forward(), layer.replay(), *layer.backward(wants)]:
        backward = step.step.startswith("backward")
        for adds in ((), tuple(step.writes)) if backward else ((),):
            expected = execute(ReferenceDevice(), run, step, adds)
            found = execute(CpuDevice(), run, step, adds)
            for role, value in expected.items():
                near = 2e-6 * max(10.0, abs(value).max())  # long sums of large terms end in small ones too
                np.testing.assert_allclose(
                    found[role], value, rtol=2e-5, atol=near, err_msg=f"{step.step} {role} {adds}"
                )
            if not adds:
                run.arrays.update(expected)


def test_every_layer_of_these_cases_has_native_kernels():
    steps = set()
    for text, *shapes in CASES.values():
        layer = layer_of(text, *shapes)
        steps |= {f"{layer.type}.{s.step}" for s in (layer.forward(), layer.replay())}
    assert steps <= set(BINDINGS)
