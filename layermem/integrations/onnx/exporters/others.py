"""Layers without arithmetic, losses, and the steps of recurrent layers."""

from __future__ import annotations

import numpy as np

from layermem import ops
from layermem.backends.reference.base import ReferenceCall
from layermem.backends.reference.prior_box import prior_box_forward
from layermem.integrations.onnx.graph import Link, Piece
from layermem.integrations.onnx.registry import exports


@exports("Silence", "HDF5Output", "StateWrite", operators="nothing")
def nothing(piece: Piece) -> None:
    piece.graph.silenced.update(piece.inputs)


@exports(
    "Accuracy",
    "EuclideanLoss",
    "SmoothL1Loss",
    "HingeLoss",
    "MultinomialLogisticLoss",
    "ContrastiveLoss",
    "MultiBoxLoss",
    "RegionLoss",
    "Yolov3",
    operators="nothing: the outputs are the bottoms",
)
def without_loss(piece: Piece) -> None:
    """Write nothing: a deployed net has no labels, so the bottoms of its losses become outputs."""


@exports("SoftmaxWithLoss", "InfogainLoss", operators="Softmax")
def softmax_of_loss(piece: Piece) -> None:
    p = piece.message.softmax_param if piece.type == "SoftmaxWithLoss" else piece.message.infogain_loss_param
    link = Link("Softmax", (), {"axis": piece.layer.axis(p.axis)})
    if len(piece.outputs) == 2:  # the second top is the softmax
        piece.chain(piece.inputs[0], link, top=1)
    else:
        piece.scores(link)


@exports("SigmoidCrossEntropyLoss", operators="Sigmoid")
def sigmoid_of_loss(piece: Piece) -> None:
    piece.scores(Link("Sigmoid"))


@exports("Parameter", operators="Identity of a constant")
def parameter(piece: Piece) -> None:
    piece.emit("Identity", piece.weight(0), top=0)


@exports("PriorBox", operators="Identity of a constant: the boxes depend on shapes alone")
def prior_box(piece: Piece) -> None:
    record = piece.layer.record
    assert isinstance(record, ops.PriorBox)
    boxes = np.empty(record.y.shape, np.float32)
    prior_box_forward(record, ReferenceCall({"y0": boxes}, {}, op=piece.name, layer=piece.name))
    piece.emit("Identity", piece.constant("boxes", boxes), top=0)


@exports("StateRead", operators="Identity of a constant: a sequence begins with zeros")
def state_read(piece: Piece) -> None:
    piece.emit("Identity", piece.constant("zeros", np.zeros(piece.y[0])), top=0)


@exports("LSTMUnit", operators="Split, Sigmoid, Tanh, Mul, Add")
def lstm_unit(piece: Piece) -> None:
    before, gates, cont = piece.inputs
    names = [piece.temporary(f"gate_{gate}") for gate in "ifog"]
    cells = piece.x[0][2]
    sizes = piece.constant("sizes", [cells] * 4, "int64")
    piece.graph.add(piece.temporary("gates"), "Split", [gates, sizes], names, {"axis": 2})
    i, f, o = (piece.emit("Sigmoid", name) for name in names[:3])
    g = piece.emit("Tanh", names[3])
    going_on = piece.reshaped(cont, piece.x[2], (*piece.x[2], 1))
    kept = piece.emit("Mul", piece.emit("Mul", f, going_on), before)
    piece.emit("Add", kept, piece.emit("Mul", i, g), top=0)
    piece.chain(piece.outputs[0], Link("Tanh"), Link("Mul", (o,)), top=1)
