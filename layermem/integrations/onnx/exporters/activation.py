"""Functions of one element."""

from __future__ import annotations

from layermem import ops
from layermem.integrations.onnx.graph import CASTS, Link, Piece
from layermem.integrations.onnx.registry import exports


@exports("ReLU", operators="Relu, or LeakyRelu with a slope")
def relu(piece: Piece) -> None:
    slope = piece.message.relu_param.negative_slope
    if slope:
        piece.emit("LeakyRelu", piece.inputs[0], top=0, alpha=slope)
    else:
        piece.emit("Relu", piece.inputs[0], top=0)


@exports("Clip", "ReLU6", operators="Clip")
def clip(piece: Piece) -> None:
    record = piece.layer.record
    assert isinstance(record, ops.Pointwise)
    low, high = piece.constant("min", record.alpha), piece.constant("max", record.beta)
    piece.emit("Clip", piece.inputs[0], low, high, top=0)


@exports("PReLU", operators="PRelu")
def prelu(piece: Piece) -> None:
    channels = piece.value(0).size
    piece.emit("PRelu", piece.inputs[0], piece.weight(0, (channels, *(1,) * (len(piece.x[0]) - 2))), top=0)


@exports("ELU", operators="Elu")
def elu(piece: Piece) -> None:
    piece.emit("Elu", piece.inputs[0], top=0, alpha=piece.message.elu_param.alpha)


@exports("Sigmoid", "TanH", "AbsVal", "BNLL", operators="Sigmoid, Tanh, Abs, Softplus")
def function(piece: Piece) -> None:
    op = {"Sigmoid": "Sigmoid", "TanH": "Tanh", "AbsVal": "Abs", "BNLL": "Softplus"}[piece.type]
    piece.emit(op, piece.inputs[0], top=0)


@exports("Power", operators="Mul, Add, Pow")
def power(piece: Piece) -> None:
    p = piece.message.power_param
    steps = [("Mul", p.scale, 1.0), ("Add", p.shift, 0.0), ("Pow", p.power, 1.0)]
    links = [Link(op, (piece.constant(op.lower(), number),)) for op, number, without in steps if number != without]
    piece.chain(piece.inputs[0], *links)


@exports("Exp", operators="Mul, Exp, Mul")
def exp(piece: Piece) -> None:
    record = piece.layer.record  # outer exp(inner x)
    assert isinstance(record, ops.Pointwise)
    inner = [Link("Mul", (piece.constant("inner", record.alpha),))] if record.alpha != 1 else []
    outer = [Link("Mul", (piece.constant("outer", record.beta),))] if record.beta != 1 else []
    piece.chain(piece.inputs[0], *inner, Link("Exp"), *outer)


@exports("Log", operators="Mul, Add, Log, Mul")
def log(piece: Piece) -> None:
    record = piece.layer.record  # factor ln(shift + scale x)
    assert isinstance(record, ops.Pointwise)
    links = [Link("Mul", (piece.constant("scale", record.alpha),))] if record.alpha != 1 else []
    links += [Link("Add", (piece.constant("shift", record.beta),))] if record.beta else []
    links += [Link("Log")]
    links += [Link("Mul", (piece.constant("factor", record.gamma),))] if record.gamma != 1 else []
    piece.chain(piece.inputs[0], *links)


@exports("Swish", operators="Mul, Sigmoid, Mul")
def swish(piece: Piece) -> None:
    x, beta = piece.inputs[0], piece.message.swish_param.beta
    scaled = piece.emit("Mul", x, piece.constant("beta", beta)) if beta != 1 else x
    piece.emit("Mul", x, piece.emit("Sigmoid", scaled), top=0)


@exports("Threshold", operators="Greater, Cast")
def threshold(piece: Piece) -> None:
    limit = piece.constant("threshold", piece.message.threshold_param.threshold)
    piece.chain(piece.inputs[0], Link("Greater", (limit,)), Link("Cast", (), CASTS["float32"]))


@exports("Dropout", operators="Dropout, which does nothing in inference")
def dropout(piece: Piece) -> None:
    piece.emit("Dropout", piece.inputs[0], piece.constant("ratio", piece.message.dropout_param.dropout_ratio), top=0)


@exports("Softmax", operators="Softmax")
def softmax(piece: Piece) -> None:
    piece.emit("Softmax", piece.inputs[0], top=0, axis=piece.layer.axis(piece.message.softmax_param.axis))
