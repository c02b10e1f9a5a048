"""Imports functions of elements, sums and products of blobs and constants, and normalization."""

from __future__ import annotations

import numpy as np

from layermem.errors import InputError
from layermem.integrations.onnx.graph import Array, Shape
from layermem.integrations.onnx.importers.windows import prefix
from layermem.integrations.onnx.node import Constant, NetValue, OnnxNode, imports

SIMPLE = {
    "Sigmoid": "Sigmoid",
    "Tanh": "TanH",
    "Abs": "AbsVal",
    "Softplus": "BNLL",
    "Relu": "ReLU",
    "Exp": "Exp",
    "Log": "Log",
}


@imports(*SIMPLE, layers="ReLU, Sigmoid, TanH, AbsVal, BNLL, Exp, Log")
def function(node: OnnxNode) -> None:
    node.make(SIMPLE[node.op], node.blob(0))


@imports("LeakyRelu", layers="ReLU with negative_slope")
def leaky_relu(node: OnnxNode) -> None:
    layer = node.layer("ReLU")
    layer.relu_param.negative_slope = node.float_attribute("alpha", 0.01)
    node.make(layer, node.blob(0))


@imports("Elu", layers="ELU")
def elu(node: OnnxNode) -> None:
    layer = node.layer("ELU")
    layer.elu_param.alpha = node.float_attribute("alpha", 1.0)
    node.make(layer, node.blob(0))


@imports("PRelu", layers="PReLU")
def prelu(node: OnnxNode) -> None:
    prefix(node)
    x, slope = node.blob(0), node.constant(1)
    view = _view(slope.array, x.shape)
    if any(size != 1 for axis, size in enumerate(view) if axis != 1):
        raise InputError("has slopes for other axes than the channels; Caffe has one for each channel, or one for all")
    layer = node.layer("PReLU")
    layer.prelu_param.channel_shared = slope.array.size == 1
    node.make(layer, x, blobs=[slope])


@imports("Clip", layers="Clip, or ReLU without a maximum")
def clip(node: OnnxNode) -> None:
    lowest, highest = -3.4028234e38, 3.4028234e38
    low = node.number(1) if node.has(1) else node.float_attribute("min", lowest)
    high = node.number(2) if node.has(2) else node.float_attribute("max", highest)
    if low == 0 and high >= highest:
        node.make("ReLU", node.blob(0))
        return
    layer = node.layer("Clip")
    layer.clip_param.min, layer.clip_param.max = max(low, lowest), min(high, highest)
    node.make(layer, node.blob(0))


@imports("HardSigmoid", "HardSwish", layers="Power, Clip, Eltwise")
def hard(node: OnnxNode) -> None:
    x, swish = node.blob(0), node.op == "HardSwish"
    line, clipped = node.layer("Power", "line"), node.layer("Clip", "clip" if swish else "")
    line.power_param.scale = 1 / 6 if swish else node.float_attribute("alpha", 0.2)
    line.power_param.shift = 0.5 if swish else node.float_attribute("beta", 0.5)
    clipped.clip_param.min, clipped.clip_param.max = 0, 1
    gate = node.between(line, x)
    if swish:
        layer = node.layer("Eltwise")
        layer.eltwise_param.operation = 0
        node.make(layer, x, node.between(clipped, gate))
    else:
        node.make(clipped, gate)


POWERS = {"Neg": (1.0, -1.0), "Reciprocal": (-1.0, 1.0), "Sqrt": (0.5, 1.0)}  # power, scale


@imports(*POWERS, layers="Power")
def power_function(node: OnnxNode) -> None:
    layer = node.layer("Power")
    layer.power_param.power, layer.power_param.scale = POWERS[node.op]
    node.make(layer, node.blob(0))


@imports("Pow", layers="Power")
def power(node: OnnxNode) -> None:
    layer = node.layer("Power")
    layer.power_param.power = node.number(1)
    node.make(layer, node.blob(0))


# -- two operands ------------------------------------------------------------------------------------------------------

PROD, SUM, MAX = 0, 1, 2  # EltwiseParameter.EltwiseOp


@imports(
    "Add", "Sub", "Mul", "Div", layers="Eltwise; with a constant Power, Scale or Bias; with a smaller blob Scale, Bias"
)
def binary(node: OnnxNode) -> None:
    first, second = node.is_constant(0), node.is_constant(1)
    if first and not second and node.op in ("Add", "Mul"):
        _with_constant(node, node.blob(1), node.constant(0), node.op)
    elif second and not first:
        constant = node.constant(1)
        array = np.asarray(constant.array, np.float32)
        if node.op == "Sub":
            constant = Constant(-array)
        elif node.op == "Div":
            with np.errstate(divide="ignore"):
                constant = Constant(1 / array)
        _with_constant(node, node.blob(0), constant, "Add" if node.op in ("Add", "Sub") else "Mul")
    elif first and not second:  # c - x, c / x
        layer = node.layer("Power", "inverse")
        layer.power_param.scale, layer.power_param.power = (-1, 1) if node.op == "Sub" else (1, -1)
        x = node.between(layer, node.blob(1))
        _with_constant(node, x, node.constant(0), "Add" if node.op == "Sub" else "Mul")
    else:
        _with_blob(node, node.blob(0), node.blob(1))


def _view(array: Array, shape: Shape) -> Shape:
    """The shape of a constant under the axes of a blob; InputError if it makes the blob larger."""
    view = (1,) * (len(shape) - array.ndim) + array.shape
    if len(view) != len(shape) or any(size not in (1, mine) for size, mine in zip(view, shape)):
        raise InputError(f"makes a blob of {list(shape)} larger by a constant of {list(array.shape)}; Tile it first")
    return view


def _span(view: Shape) -> tuple[int, int] | None:
    """The axes of a Scale or Bias as a half-open range."""
    axes = [axis for axis, size in enumerate(view) if size != 1]
    return (axes[0], axes[-1] + 1) if axes else None


def _with_constant(node: OnnxNode, x: NetValue, constant: Constant, op: str) -> None:
    """Add x + c or x c."""
    view = _view(constant.array, x.shape)
    own_axis = len(view) - max(1, constant.array.ndim)
    is_weight = bool(constant.name and len(x.shape) > 1 and constant.array.ndim) and x.shape[own_axis] == 1
    span = _span(view) or ((own_axis, own_axis + 1) if is_weight else None)
    if span is None:
        layer = node.layer("Power")
        number = float(constant.array.reshape(-1)[0])
        layer.power_param.shift, layer.power_param.scale = (number, 1) if op == "Add" else (0, number)
        node.make(layer, x)
        return
    first, last = span
    whole = (*view[:first], *x.shape[first:last], *view[last:])  # Caffe's axes follow each other
    axes = last - first

    def spread(constant: Constant) -> Constant:
        return constant if view == whole else Constant(np.broadcast_to(constant.array, whole), constant.name)

    if op == "Add":
        bias = node.layer("Bias")
        bias.bias_param.axis, bias.bias_param.num_axes = first, axes
        node.make(bias, x, blobs=[spread(constant)])
        return
    layer, blobs = node.layer("Scale"), [spread(constant)]
    layer.scale_param.axis, layer.scale_param.num_axes = first, axes
    following = node.only_consumer("Add")
    shift = following and (following.known(1) or following.known(0))
    if following and shift and _fits(shift.array, x.shape, view):
        layer.scale_param.bias_term = True
        layer.name = node.model.net.rename(layer.name, following.proto.name or layer.name)
        blobs.append(spread(shift))
        node.take(following)
    node.make(layer, x, blobs=blobs)


def _fits(array: Array, shape: Shape, view: Shape) -> bool:
    try:
        return _view(array, shape) == view
    except InputError:
        return False


def _with_blob(node: OnnxNode, a: NetValue, b: NetValue) -> None:
    if a.shape == b.shape:
        if node.op == "Div":
            layer = node.layer("Power", "inverse")
            layer.power_param.power = -1
            b = node.between(layer, b)
        layer = node.layer("Eltwise")
        layer.eltwise_param.operation = SUM if node.op in ("Add", "Sub") else PROD
        if node.op == "Sub":
            layer.eltwise_param.coeff.extend((1, -1))
        node.make(layer, a, b)
        return
    if node.op not in ("Add", "Mul"):
        raise InputError(
            f"combines blobs of {list(a.shape)} and {list(b.shape)}; Caffe takes one shape: Tile one first"
        )
    if np.prod(a.shape) < np.prod(b.shape):
        a, b = b, a
    view = (1,) * (len(a.shape) - len(b.shape)) + b.shape
    axes = [axis for axis, size in enumerate(view) if size == a.shape[axis] and size != 1]
    ones = [axis for axis, size in enumerate(view) if size == 1 != a.shape[axis]]
    if len(axes) + sum(size == 1 for size in view) != len(view) or not ones:
        raise InputError(
            f"combines blobs of {list(a.shape)} and {list(b.shape)}; Caffe takes one shape: Tile one first"
        )
    first, last = (0, max(axes, default=-1) + 1) if 0 not in ones else (min(axes, default=0), max(axes, default=-1) + 1)
    if any(axis in ones for axis in range(first, last)):
        raise InputError(f"combines blobs of {list(a.shape)} and {list(b.shape)}; Caffe's axes follow each other")
    b = node.reshape(b, a.shape[first:last], "operand")
    layer = node.layer("Scale" if node.op == "Mul" else "Bias")
    (layer.scale_param if node.op == "Mul" else layer.bias_param).axis = first
    node.make(layer, a, b)


@imports("Sum", "Max", layers="Eltwise")
def many(node: OnnxNode) -> None:
    blobs = [node.blob(i) for i in range(node.input_count)]
    if len(blobs) == 1:
        node.result(blobs[0])
        return
    layer = node.layer("Eltwise")
    layer.eltwise_param.operation = SUM if node.op == "Sum" else MAX
    node.make(layer, *blobs)


# -- products with weights, normalization ------------------------------------------------------------------------------


@imports("Gemm", layers="InnerProduct")
def gemm(node: OnnxNode) -> None:
    prefix(node)
    x, weight = node.blob(0), node.constant(1)
    if len(x.shape) != 2 or weight.array.ndim != 2 or node.int_attribute("transA", 0):
        raise InputError("is no product of a matrix with constant weights; layermem takes N x K: export it so")
    alpha, beta = node.float_attribute("alpha", 1.0), node.float_attribute("beta", 1.0)
    if alpha != 1:
        weight = Constant(np.asarray(weight.array, np.float32) * np.float32(alpha))
    transposed = bool(node.int_attribute("transB", 0))
    layer = node.layer("InnerProduct")
    layer.inner_product_param.num_output = weight.array.shape[0 if transposed else 1]
    layer.inner_product_param.transpose = not transposed
    if transposed:
        layer.inner_product_param.ClearField("transpose")
    blobs = [weight]
    if node.has(2):
        blobs.append(_bias(node.constant(2), layer.inner_product_param.num_output, beta))
    else:
        layer.inner_product_param.bias_term = False
    node.make(layer, x, blobs=blobs)


def _bias(constant: Constant, outputs: int, factor: float) -> Constant:
    array = np.asarray(constant.array, np.float32)
    if array.shape[-1:] == (outputs,) and array.size == outputs and factor == 1:
        return constant
    if array.size not in (1, outputs) or array.shape[-1:] not in ((), (1,), (outputs,)):
        raise InputError(f"has a bias of {list(array.shape)} for {outputs} outputs; Caffe has one number for each")
    return Constant(np.broadcast_to(array.reshape(-1) * np.float32(factor), (outputs,)))


@imports("MatMul", layers="InnerProduct")
def matmul(node: OnnxNode) -> None:
    prefix(node)
    x, weight = node.blob(0), node.constant(1)
    if weight.array.ndim != 2 or len(x.shape) < 2:
        raise InputError("is no product with a constant matrix; Caffe has no product of blobs: export the net up to it")
    layer = node.layer("InnerProduct")
    p = layer.inner_product_param
    p.num_output, p.axis = weight.array.shape[1], len(x.shape) - 1
    blobs = [Constant(np.ascontiguousarray(weight.array.T), weight.name and f"{weight.name}.T")]
    following = node.only_consumer("Add")
    bias = following and (following.known(1) or following.known(0))
    if following and bias and bias.array.shape == (p.num_output,):
        if bias.name.endswith(".bias"):
            layer.name = node.model.net.rename(layer.name, bias.name.removesuffix(".bias"))
        blobs.append(bias)
        node.take(following)
    else:
        p.bias_term = False
    node.make(layer, x, blobs=blobs)


@imports("BatchNormalization", layers="BatchNorm, Scale")
def batch_normalization(node: OnnxNode) -> None:
    prefix(node)
    if node.int_attribute("training_mode", 0):
        raise InputError("takes the statistics of the batch (training_mode); export the model for inference")
    x = node.blob(0)
    scale, bias, mean, variance = (node.constant(i) for i in range(1, 5))
    norm = node.layer("BatchNorm")
    norm.batch_norm_param.eps = node.float_attribute("epsilon", 1e-5)
    norm.batch_norm_param.moving_average_fraction = node.float_attribute("momentum", 0.9)
    averages = [Constant(mean.array), Constant(variance.array), Constant(np.ones(1, np.float32))]
    if (np.asarray(scale.array) == 1).all() and not np.asarray(bias.array).any():
        node.make(norm, x, blobs=averages)
        return
    y = node.between(norm, x, blobs=averages)
    layer = node.layer("Scale", "scale")
    layer.scale_param.bias_term = True
    node.make(layer, y, blobs=[scale, bias])


@imports("LRN", layers="LRN")
def lrn(node: OnnxNode) -> None:
    layer = node.layer("LRN")
    p = layer.lrn_param
    p.local_size = node.int_attribute("size", 5)
    p.alpha, p.beta = node.float_attribute("alpha", 1e-4), node.float_attribute("beta", 0.75)
    p.k = node.float_attribute("bias", 1.0)
    node.make(layer, node.blob(0))


@imports("Dropout", layers="Dropout")
def dropout(node: OnnxNode) -> None:
    if node.has(2) and node.number(2):
        raise InputError("drops elements (training_mode); export the model for inference")
    ratio = node.number(1) if node.has(1) else node.float_attribute("ratio", 0.5)
    if not 0 < ratio < 1:
        node.result(node.blob(0))
        return
    layer = node.layer("Dropout")
    layer.dropout_param.dropout_ratio = ratio
    node.make(layer, node.blob(0))


@imports("Softmax", "LogSoftmax", layers="Softmax, Log")
def softmax(node: OnnxNode) -> None:
    x = node.blob(0)
    rank = len(x.shape)
    axis = node.axis(-1 if node.opset >= 13 else 1, rank)
    if node.opset < 13 and any(size != 1 for size in x.shape[axis + 1 :]):
        raise InputError("is over several axes, as before opset 13; export the model with opset 13 or later")
    layer = node.layer("Softmax")
    layer.softmax_param.axis = axis
    if node.op == "Softmax":
        node.make(layer, x)
    else:
        layer.name += "/softmax"
        node.make("Log", node.between(layer, x))
