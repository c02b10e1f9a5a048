"""A net of phase TEST and its weights as an ONNX model.

net        layermem/graph/net.py, layer by layer through the exporters of its types
inputs     blobs of input layers that an operator reads        outputs   blobs that no operator reads
names      as in Caffe; earlier versions of blobs that are written in place have a number: `conv1/1`
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from layermem.api import Net, build_net
from layermem.errors import InputError
from layermem.graph import net as graph_net
from layermem.graph.deploy import deploy_net
from layermem.graph.net import NetLayer, NetOptions, Node
from layermem.integrations.onnx import exporters as exporters  # registers them
from layermem.integrations.onnx.graph import OPSET, Array, OnnxGraph, Piece, Shape
from layermem.integrations.onnx.library import onnx_library
from layermem.integrations.onnx.registry import EXPORTERS, REFUSED
from layermem.layers.data import FEEDS
from layermem.proto.blobs import MESSAGE_LIMIT_BYTES
from layermem.proto.schema import PHASES
from layermem.proto.weights import Weights, open_weights
from layermem.solver.parameters import match_weights
from layermem.utils.files import write_atomically
from layermem.utils.units import format_bytes

IR_VERSION = 8  # version of ONNX 1.10, the first whose operators are checked here
LOSSES = ("SoftmaxWithLoss", "InfogainLoss", "SigmoidCrossEntropyLoss")  # losses that become scores
BATCH = "N"  # the name of the first axis if the batch is open


class Exported(NamedTuple):
    """A model (onnx.ModelProto), and notes: the inputs that no operator reads."""

    model: Any
    notes: list[str]


def export(
    net: str | Path | Net | graph_net.Net,
    path: str | Path,
    weights: Sequence[str | Path] | str | Path = (),
    *,
    batch: int | None = None,
    inputs: Mapping[str, Sequence[int]] | None = None,
    any_batch: bool = False,
) -> list[str]:
    """Write `net` with `weights` as an ONNX model to `path` atomically; return notes.

    net         a prototxt file, read in phase TEST, or a Net of that phase; its deploy form is written
    weights     files; a layer is taken from the last file that has it
    batch, inputs   for a file, as in layermem.Net
    any_batch  inputs take batches of any size: the first axis is `N`

    InputError for a layer that ONNX cannot express, with its name and the reason, before anything is written.
    """
    if isinstance(net, Net):
        net = net.definition
    elif not isinstance(net, graph_net.Net):
        net = build_net(str(net), "TEST", batch=batch, inputs=inputs)
    check_phase(net)
    deployed = build_net(deploy_net(net), "TEST")
    try:
        check_types(deployed)  # raises errors before files are read
    except InputError as error:
        raise net.placed(InputError(error.what, layer=error.layer)) from None
    files = [weights] if isinstance(weights, (str, Path)) else list(weights)
    values, notes = parameter_values(net, [str(file) for file in files], deployed.params)
    exported = export_model(deployed, values, any_batch=any_batch)
    write_model(path, exported.model)
    return [*notes, *exported.notes]


def check_phase(net: graph_net.Net) -> None:
    if net.phase != PHASES["TEST"]:
        raise InputError("is a net of phase TRAIN; build it with phase TEST", path=str(net.path))


def write_model(path: str | Path, model: Any) -> None:
    """Check `model` and write it atomically."""
    size = model.ByteSize()
    if size > MESSAGE_LIMIT_BYTES:
        raise InputError(
            f"cannot be written: the model takes {format_bytes(size)}, above the limit of an ONNX file, "
            f"{format_bytes(MESSAGE_LIMIT_BYTES)}; use fewer or smaller layers",
            path=str(path),
        )
    write_atomically(path, model.SerializeToString())


def export_model(net: graph_net.Net, values: Mapping[str, Array], *, any_batch: bool = False) -> Exported:
    """Return the model of `net` with parameters `values`, by name and in Caffe's shapes; it has passed onnx.checker."""
    onnx = onnx_library()
    check_phase(net)
    graph = write_graph(net, values)
    known = _shapes(net, graph)
    inputs, outputs = _ends(net, graph, known)
    notes = [f"input '{name}' is left out: no operator reads it" for name in _dropped(net, inputs)]
    if not outputs:
        raise InputError("has no layer that makes an output; add one", path=str(net.path))
    shapes: dict[str, Sequence[int | str]] = {name: known[name] for name in (*inputs, *outputs)}
    if any_batch:
        shapes = {name: (BATCH, *shape[1:]) for name, shape in shapes.items()}
        _check_any_batch(net, graph, values)
    values_of = [
        [onnx.helper.make_tensor_value_info(name, 1, shapes[name]) for name in names] for names in (inputs, outputs)
    ]
    used = {name for node in graph.nodes for name in node.input}
    constants = [onnx.numpy_helper.from_array(v, name) for name, v in graph.constants.items() if name in used]
    made = onnx.helper.make_graph(graph.nodes, net.name, *values_of, constants)
    model = onnx.helper.make_model(
        made, producer_name="layermem", ir_version=IR_VERSION, opset_imports=[onnx.helper.make_opsetid("", OPSET)]
    )
    if model.ByteSize() <= MESSAGE_LIMIT_BYTES:
        onnx.checker.check_model(model, full_check=True)
    return Exported(model, notes)


def parameter_values(
    net: graph_net.Net, files: Sequence[str], needed: Collection[str]
) -> tuple[dict[str, Array], list[str]]:
    """Return the parameters of `net` by name, and a note for each layer of a file that the net lacks.

    needed   parameters that must be in a file
    """
    values: dict[str, Array] = {}
    unknown: list[str] = []
    for file in files:
        layers: Weights[Any] = open_weights(file)
        try:
            matched, more = match_weights((net,), layers)
        except InputError as error:
            raise error.at(path=file) from None
        values.update((name, np.asarray(blob, np.float32)) for name, blob in matched.items())
        unknown += more
    for name, owned in net.params.items():
        if owned.param.carried or name not in needed:
            continue
        if name not in values:
            what = (
                "has no blobs in the weights; give --weights of this net" if files else "needs its blobs; give weights"
            )
            raise net.placed(InputError(what, layer=owned.layer.partition("/")[0]))
        values[name] = values[name].reshape(owned.param.shape)
    return values, [f"layer '{name}' of the weights is not in the net" for name in unknown]


# -- layers ------------------------------------------------------------------------------------------------------------


def check_types(net: graph_net.Net) -> None:
    """Raise InputError for the first layer of a type that ONNX cannot express."""
    for layer in net.layers:
        parts = {node.layer.type for node in layer.nodes}
        if layer.type in REFUSED:
            what = f"has type '{layer.type}', which {REFUSED[layer.type]}"
        elif layer.type not in EXPORTERS and not parts <= EXPORTERS.keys() | FEEDS:
            what = f"has type '{layer.type}', which has no form in ONNX; remove it, or export the net up to it"
        else:
            continue
        raise net.placed(InputError(what, layer=layer.name))


def write_graph(net: graph_net.Net, values: Mapping[str, Array]) -> OnnxGraph:
    """Write the operators of all layers of `net`."""
    check_types(net)
    graph = OnnxGraph(values)
    names = blob_names(net)
    graph.one_loss = sum(layer.type in LOSSES for layer in net.layers) == 1
    for name in names.values():
        graph.free_name(name)
    for layer in net.layers:
        try:
            for piece in _pieces(graph, net, layer, names):
                EXPORTERS[piece.type].write(piece)
        except InputError as error:
            raise net.placed(error.at(layer=layer.name)) from None
    return graph


def _pieces(graph: OnnxGraph, net: graph_net.Net, layer: NetLayer, names: Mapping[str, str]) -> list[Piece]:
    """The pieces of a layer for exporters: the layer itself, or its parts; none for an input layer."""
    if layer.type in EXPORTERS and (len(layer.nodes) == 1 or EXPORTERS[layer.type].whole):
        main = next((node for node in layer.nodes if node.layer.type == layer.type), layer.nodes[-1])
        piece = _piece(graph, net, main, names)
        params = tuple(name for name, _ in layer.params)
        return [_rewired(replace(piece, message=layer.message, params=params), net, layer, names)]
    return [_piece(graph, net, node, names) for node in layer.nodes if node.layer.type not in FEEDS]


def _piece(graph: OnnxGraph, net: graph_net.Net, node: Node, names: Mapping[str, str]) -> Piece:
    layer = node.layer
    piece = Piece(graph, layer.name, layer.type, layer.param, layer, (), (), (), (), node.params)
    return _rewired(piece, net, node, names)


def _rewired(piece: Piece, net: graph_net.Net, layer: Node | NetLayer, names: Mapping[str, str]) -> Piece:
    """The piece with the blobs of `layer` as its inputs and outputs."""
    ends = [
        (tuple(names[b] for b in blobs), tuple(net.blobs[b].shape for b in blobs))
        for blobs in (layer.bottoms, layer.tops)
    ]
    (inputs, x), (outputs, y) = ends
    return replace(piece, inputs=inputs, outputs=outputs, x=x, y=y)


# -- ends of the graph -------------------------------------------------------------------------------------------------


def blob_names(net: graph_net.Net) -> dict[str, str]:
    """The names of blobs in the ONNX graph, by version: the newest has Caffe's name."""
    names: dict[str, str] = {}
    for version in net.blobs:
        name = version.rstrip("'")
        newest = name in net.blobs and net.blob_version(name) == version
        number = len(version) - len(name) + 1
        names[version] = name if newest else f"{name}/{number}"
    if len(set(names.values())) < len(names):
        return {version: version for version in net.blobs}
    return names


def _shapes(net: graph_net.Net, graph: OnnxGraph) -> dict[str, Shape]:
    named = {name: net.blobs[version].shape for version, name in blob_names(net).items()}
    return {**named, **graph.scores}


def _feeds(net: graph_net.Net) -> list[str]:
    names = blob_names(net)
    return [names[top] for layer in net.layers if layer.type in FEEDS for top in layer.tops]


def _dropped(net: graph_net.Net, inputs: Sequence[str]) -> list[str]:
    return [name for name in _feeds(net) if name not in inputs]


def _ends(net: graph_net.Net, graph: OnnxGraph, known: Mapping[str, Shape]) -> tuple[list[str], list[str]]:
    """The inputs that an operator reads, and the outputs of the net, or of layers whose readers are left out."""
    read = {name for node in graph.nodes for name in node.input}
    inputs = [name for name in _feeds(net) if name in read]
    names = blob_names(net)
    last = {names[version] for version in net.outputs}
    made = [name for node in graph.nodes for name in node.output if name in known]
    return inputs, [name for name in made if name in last or name not in read | graph.silenced]


# -- batches of any size -----------------------------------------------------------------------------------------------


def _check_any_batch(net: graph_net.Net, graph: OnnxGraph, values: Mapping[str, Array]) -> None:
    """Raise InputError unless the net with another batch has the same operators and constants."""
    shapes = {top: net.blobs[top].shape for layer in net.layers if layer.type in FEEDS for top in layer.tops}
    larger = {name: (shape[0] + 1, *shape[1:]) for name, shape in shapes.items() if shape}
    try:
        other_net = graph_net.Net(net.file, net.phase, NetOptions(inputs=larger, stages=net.options.stages))
        other = write_graph(other_net, values)
    except InputError as error:
        raise error.at(path=str(net.path)) from None
    for mine, theirs in zip(graph.nodes, other.nodes):
        same = mine == theirs and all(
            np.array_equal(graph.constants[name], other.constants[name])
            for name in mine.input
            if name in graph.constants and name in other.constants
        )
        if not same:
            layer = mine.name.rpartition("/")[0] or mine.name
            what = "depends on the size of the batch; export it with the batch that you need"
            raise net.placed(InputError(what, layer=layer))
