"""Imports an ONNX model as a net with its prototxt and its weights.

    nodes of constants     are computed by onnx's reference implementation if their results are small
    all others             become layers, in their order (importers/)
    shapes                 are computed by layermem's layers; a batch that the model leaves open is `batch`, or 1

Nodes that Caffe cannot express are refused by name.  Damaged and malicious files are refused within memory of their own
size: arrays are no larger than the file, and layers only compute shapes.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from google.protobuf import text_format
from google.protobuf.message import DecodeError

from layermem.errors import InputError
from layermem.integrations.onnx import importers as importers  # registers them
from layermem.integrations.onnx.graph import Array, Shape
from layermem.integrations.onnx.library import onnx_library
from layermem.integrations.onnx.net_writer import Constant, NetValue, NetWriter
from layermem.integrations.onnx.node import IMPORTERS, Model, OnnxNode, located
from layermem.layers.base import Tensor
from layermem.ops.base import MAX_COUNT
from layermem.proto.blobs import MESSAGE_LIMIT_BYTES
from layermem.proto.schema import Message
from layermem.proto.weights import weights_content
from layermem.utils.files import write_together
from layermem.utils.input_files import read_bytes

OPSETS = (11, 21)  # first and last supported opset
MAX_NODES = 100_000
MAX_AXES = 32
FOLDED = {  # operators that are computed if their inputs are constants
    "Add", "Cast", "CastLike", "Ceil", "Concat", "Constant", "Div", "Equal", "Floor", "Gather", "Identity", "Max",
    "Min", "Mod", "Mul", "Neg", "Not", "Pow", "Range", "ReduceProd", "Reshape", "Shape", "Size", "Slice", "Sqrt",
    "Squeeze", "Sub", "Transpose", "Unsqueeze", "Where",
}  # fmt: skip
# Operators whose results are as large as their inputs.
AS_LARGE = {"Reshape", "Transpose", "Cast", "Squeeze", "Unsqueeze"}
GROWING = {"ConstantOfShape", "Expand"}  # operators whose results may be larger than their inputs
MAX_FOLDED = 1 << 16
TENSOR = 4  # AttributeProto.AttributeType


class Imported(NamedTuple):
    """net      the message of the deploy net (NetParameter), with Input layers
    weights  (type, blobs) by layer name
    """

    net: Message
    weights: dict[str, tuple[str, list[Array]]]

    @property
    def prototxt(self) -> str:
        text: str = text_format.MessageToString(self.net, as_utf8=True)
        return text


def load(path: str | Path, *, batch: int | None = None, inputs: Mapping[str, Sequence[int]] | None = None) -> Imported:
    """Read the net and the weights of the ONNX model in a file; tensors in files next to it are read too.

    batch    batch size of inputs whose first axis the model leaves open (default 1)
    inputs   shapes by name, which replace those in the model

    InputError for a node that Caffe's layers cannot express, with its name and the reason.
    """
    onnx, where = onnx_library(), str(path)
    raw = read_bytes(where, what="ONNX model (.onnx)", limit=MESSAGE_LIMIT_BYTES)
    try:
        model = onnx.ModelProto.FromString(raw)
    except (DecodeError, UnicodeDecodeError):
        raise InputError("is truncated, or is no ONNX model; copy it again", path=where) from None
    del raw
    try:
        return _import_model(model, Path(where), batch, dict(inputs or {}))
    except InputError as error:
        raise error.at(path=where) from None


def convert(
    path: str | Path, net: str | Path, *, batch: int | None = None, inputs: Mapping[str, Sequence[int]] | None = None
) -> tuple[Imported, str]:
    """Write the net to `net`, a prototxt, and its weights to a .caffemodel next to it; both files, or none.

    Returns the imported model and the name of the weight file.
    """
    imported = load(path, batch=batch, inputs=inputs)
    weights = str(Path(net).with_suffix(".caffemodel"))
    content = weights_content(weights, imported.net.name, imported.weights)
    write_together([(str(net), imported.prototxt.encode()), (weights, content)])
    return imported, weights


def _import_model(model: Any, path: Path, batch: int | None, inputs: dict[str, Sequence[int]]) -> Imported:
    graph = model.graph
    opset = next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 0)
    if not graph.node:
        raise InputError("has no nodes, or is no ONNX model; export it again")
    if not OPSETS[0] <= opset <= OPSETS[1]:
        raise InputError(f"is of opset {opset}; export it with opset {OPSETS[0]} to {OPSETS[1]}")
    if len(graph.node) > MAX_NODES or model.functions:
        what = f"{len(graph.node):,} nodes, more than {MAX_NODES:,}" if not model.functions else "functions of its own"
        raise InputError(f"has {what}; simplify it (onnx.inliner writes functions out)")
    _check_names(graph)
    net = NetWriter()
    net.message.name = graph.name or path.stem
    state = Model(net, opset)
    state.outputs = {each.name for each in graph.output}
    for node in graph.node:
        for name in node.input:
            state.consumers.setdefault(name, []).append(node)
    for tensor in graph.initializer:
        name = tensor.name
        state.values[name] = Constant(_array(tensor, path.parent), name)
    given = [each for each in graph.input if each.name not in state.values]
    net.reserve([*(each.name for each in given), *state.outputs])
    for each in given:
        state.values[each.name] = _input(net, each, batch, inputs)
    if unknown := set(inputs) - {each.name for each in given}:
        names = " ".join(each.name for each in given)
        raise InputError(f"has no input '{sorted(unknown)[0]}'; give one of: {names}")
    for index, proto in enumerate(graph.node):
        _read(state, proto, index, path)
    for name in state.outputs:
        if not isinstance(state.values.get(name), NetValue):
            raise InputError(f"has the output '{name}', which no layer computes; export the model again")
    return Imported(net.message, net.weights)


def _check_names(graph: Any) -> None:
    """Raise InputError for a name that is not UTF-8, which protobuf returns as bytes."""
    for node in graph.node:
        for text in (node.name, node.op_type, node.domain, *node.input, *node.output):
            if not isinstance(text, str):
                raise InputError("has a name that is not UTF-8; the file is damaged: copy it again")
    for each in (*graph.input, *graph.output, *graph.initializer):
        if not isinstance(each.name, str):
            raise InputError("has a name that is not UTF-8; the file is damaged: copy it again")


def _read(state: Model, proto: Any, index: int, path: Path) -> None:
    """Add the layers or constants of one node."""
    if id(proto) in state.done:
        return
    op = proto.op_type
    name = (proto.name or f"{op}_{index}").strip("/")
    with located(str(path), op, name):
        if proto.domain not in ("", "ai.onnx"):
            raise InputError(f"is of domain '{proto.domain}', which layermem does not read; export it without")
        if not proto.output or not proto.output[0]:
            raise InputError("has no output; export the model again")
        if any(output in state.values for output in proto.output if output):
            raise InputError("makes a value that an earlier node makes; export the model again")
        constants = [state.values.get(each) for each in proto.input if each]
        if op in FOLDED | GROWING and all(isinstance(each, Constant) for each in constants):
            for output, value in zip(proto.output, _fold(state, proto, path)):
                state.values[output] = value
        elif op in IMPORTERS:
            IMPORTERS[op](OnnxNode(copy.deepcopy(proto) if _takes(op) else proto, name, state))
        else:
            raise InputError("is an operator that layermem does not have; export the net up to it")


def _takes(op: str) -> bool:
    """Whether a node may absorb the next one, which changes its outputs."""
    return op in ("Mul", "Div", "MatMul")


def _input(net: NetWriter, each: Any, batch: int | None, inputs: Mapping[str, Sequence[int]]) -> NetValue:
    """Add an Input layer for an input of the model."""
    tensor = each.type.tensor_type
    if each.name in inputs:
        shape = tuple(inputs[each.name])
    else:
        if len(tensor.shape.dim) > MAX_AXES or not tensor.HasField("shape"):
            raise InputError(f"does not state the shape of input '{each.name}'; give its shape (--input NAME=N,C,H,W)")
        sizes = [dim.dim_value for dim in tensor.shape.dim]
        if sizes and (sizes[0] < 1 or batch is not None):
            sizes[0] = batch or 1
        if any(size < 1 for size in sizes):
            raise InputError(f"leaves sizes of input '{each.name}' open; give its shape (--input {each.name}=N,C,H,W)")
        shape = tuple(sizes)
    if any(size < 1 for size in shape) or prod(shape) > MAX_COUNT:
        raise InputError(
            f"has an input '{each.name}' of {Tensor(shape)}; a blob has 1 to 2^31-1 elements: give its shape"
        )
    layer = net.layer(each.name, "Input")
    layer.top.append(each.name)
    layer.input_param.shape.add(dim=shape)
    net.message.layer.append(layer)
    return NetValue(each.name, shape)


def _array(tensor: Any, folder: Path) -> Array:
    """Return an initializer, which may lie in a file next to the model; InputError for a damaged one."""
    onnx = onnx_library()
    try:
        if len(tensor.dims) > MAX_AXES or any(size < 0 for size in tensor.dims) or prod(tensor.dims) > MAX_COUNT:
            raise ValueError("its shape")
        if onnx.external_data_helper.uses_external_data(tensor):
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(folder))
        array: Array = onnx.numpy_helper.to_array(tensor)
        if array.shape != tuple(tensor.dims):
            raise ValueError("its size")
    except Exception as error:  # of onnx, by its kinds of errors
        first = str(error).partition("\n")[0][:120]
        raise InputError(f"has a tensor '{tensor.name}' that cannot be read ({first}); copy the model again") from None
    if array.dtype.kind not in "fiub":
        try:
            array = array.astype(np.float32)  # bfloat16
        except (TypeError, ValueError):
            raise InputError(f"has a tensor '{tensor.name}' of {array.dtype}; export it in float32") from None
    tensor.Clear()  # its bytes are in `array`
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def _fold(state: Model, proto: Any, path: Path) -> list[Constant]:
    """Compute the results of a node of constants."""
    onnx = onnx_library()
    tensor = next((each.t for each in proto.attribute if each.name == "value" and each.type == TENSOR), None)
    if proto.op_type == "Constant" and tensor is not None:
        return [Constant(_array(tensor, path.parent), proto.output[0])]
    values = {name: value for name in proto.input if isinstance(value := state.values.get(name), Constant)}
    if proto.op_type == "Identity":
        return [*values.values()]
    known = {name: value.array for name, value in values.items()}
    if proto.op_type not in AS_LARGE and not _is_small(proto, known):
        raise InputError("computes a large constant; fold constants before you export the model")
    try:
        ends = [[onnx.helper.make_empty_tensor_value_info(name) for name in names] for names in (known, proto.output)]
        graph = onnx.helper.make_graph([proto], "constant", *ends)
        alone = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", state.opset)])
        results = onnx.reference.ReferenceEvaluator(alone).run(None, known)
    except Exception as error:  # of onnx, by its kinds of errors
        first = str(error).partition("\n")[0][:120]
        raise InputError(f"cannot be computed ({first}); export the model again") from None
    return [Constant(np.asarray(result)) for result in results]


def _is_small(proto: Any, known: Mapping[str, Array]) -> bool:
    """Whether a node makes at most MAX_FOLDED elements, decided before it runs."""
    arrays = list(known.values())
    if proto.op_type in GROWING | {"Range"}:
        integers = [int(abs(each)) for array in arrays if array.size <= MAX_AXES for each in array.reshape(-1)]
        return (
            all(array.size <= MAX_FOLDED for array in arrays) and prod(max(1, each) for each in integers) <= MAX_FOLDED
        )
    try:
        shape: Shape = np.broadcast_shapes(*(array.shape for array in arrays)) if arrays else ()
    except ValueError:
        shape = (sum(array.size for array in arrays),)
    return max(prod(shape), sum(array.size for array in arrays)) <= max(MAX_FOLDED, *(2 * a.size for a in arrays), 0)
