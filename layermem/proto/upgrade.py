"""Upgrades nets and solvers of old formats, as Caffe does when it reads them.

    layers { layer { type: "conv" } }     2013   upgrade_v0.py
    layers { type: CONVOLUTION }          2014   a `layer` with a named type, ParamSpecs from four lists
    data_param { mean_file: ... }         2014   inside such `layers`: moved to transform_param
    input: "data"  input_dim: 10 ...      2015   becomes an Input layer at the front
    BatchNorm with three `param`          2016   lr_mult and decay_mult of its statistics are 0
    solver_type: ADAM                     2015   type: "Adam"
    no snapshot_prefix, or a folder       2017   the name of the solver file

    source  Caffe upgrade_proto.cpp

Every upgrade works in place and adds a note for the log.
"""

from __future__ import annotations

import os.path

from layermem.errors import InputError
from layermem.proto.schema import LATER_TYPES, LayerParameter, Message, NetParameter, enum_name
from layermem.proto.upgrade_v0 import upgrade_v0

Lines = list[int | None]  # the first line of each layer; None if it is not in the text

# V1 types are V2 types in capitals, such as INNER_PRODUCT for InnerProduct; these are the exceptions.
_TYPE = {
    "NONE": "",
    "ABSVAL": "AbsVal",
    "ARGMAX": "ArgMax",
    "BNLL": "BNLL",
    "HDF5_DATA": "HDF5Data",
    "HDF5_OUTPUT": "HDF5Output",
    "LRN": "LRN",
    "MVN": "MVN",
    "RELU": "ReLU",
    "SOFTMAX_LOSS": "SoftmaxWithLoss",
    "TANH": "TanH",
    **LATER_TYPES,
}
_TRANSFORMED = ("data_param", "image_data_param", "memory_data_param", "window_data_param")
_DATA_BLOCKS = {"DATA": "data_param", "IMAGE_DATA": "image_data_param", "WINDOW_DATA": "window_data_param"}
_MOVED_TO_TRANSFORM = ("scale", "mean_file", "crop_size", "mirror")
_SOLVER_TYPE = {
    "SGD": "SGD",
    "NESTEROV": "Nesterov",
    "ADAGRAD": "AdaGrad",
    "RMSPROP": "RMSProp",
    "ADADELTA": "AdaDelta",
    "ADAM": "Adam",
}


def upgrade_net(net: Message, lines: Lines, input_line: int | None = None) -> tuple[Lines, list[str]]:
    """Upgrade a NetParameter in place; return the lines of its layers afterwards, and the notes.

    `lines` belong to `net.layers` if there are any, else to `net.layer`; `input_line` belongs to its first `input`.
    """
    notes: list[str] = []
    if net.layers:
        if net.layer:
            what = "the net has both 'layer' and 'layers' blocks; rename them all to 'layer'"
            raise InputError(what, line=lines[0] if lines else None)
        lines = upgrade_v0(net, lines, notes)
        _upgrade_transforms(net, notes)
        _upgrade_v1(net, notes)
    _move_transforms(net, lines)
    if net.input:
        lines = _upgrade_input(net, lines, input_line, notes)
    _freeze_statistics(net, notes)
    _note_ignored_transforms(net, notes)
    return lines, notes


def v2_type(v1_type: str) -> str:
    """The layer type for a name of V1LayerParameter.LayerType: "INNER_PRODUCT" -> "InnerProduct"."""
    regular = "".join(part.capitalize() for part in v1_type.split("_"))
    return _TYPE.get(v1_type, regular)


def _upgrade_transforms(net: Message, notes: list[str]) -> None:
    for layer in net.layers:
        block = _DATA_BLOCKS.get(enum_name(layer, "type"))
        if block is None or not layer.HasField(block):
            continue
        old = getattr(layer, block)
        for field in _MOVED_TO_TRANSFORM:
            if old.HasField(field):
                setattr(layer.transform_param, field, getattr(old, field))
                old.ClearField(field)
                notes.append(f"layer '{layer.name}': moved {block}.{field} to transform_param")


def _move_transforms(net: Message, lines: Lines) -> None:
    """Make the transform_param inside of a block of data, as some forks have it, that of the layer."""
    for layer, line in zip(net.layer, lines, strict=True):
        for block in _TRANSFORMED:
            if not layer.HasField(block) or not getattr(layer, block).HasField("transform_param"):
                continue
            inside = getattr(layer, block).transform_param
            if layer.HasField("transform_param") and layer.transform_param != inside:
                what = f"has a transform_param, and another one inside {block}; keep the first"
                raise InputError(what, line=line, layer=layer.name)
            layer.transform_param.CopyFrom(inside)
            getattr(layer, block).ClearField("transform_param")


def _upgrade_v1(net: Message, notes: list[str]) -> None:
    notes.append(f"rewrote {len(net.layers)} old 'layers' blocks as 'layer'")
    net.layer.extend(_v2_layer(old) for old in net.layers)
    net.ClearField("layers")


def _v2_layer(old: Message) -> Message:
    new = LayerParameter(name=old.name, type=v2_type(enum_name(old, "type")))
    for field in ("bottom", "top", "include", "exclude", "blobs", "loss_weight"):
        getattr(new, field).extend(getattr(old, field))
    for field, value in old.ListFields():
        if field.name.endswith("_param") and field.message_type is not None:
            getattr(new, field.name).CopyFrom(value)
    for spread, field in (
        ("param", "name"),
        ("blob_share_mode", "share_mode"),
        ("blobs_lr", "lr_mult"),
        ("weight_decay", "decay_mult"),
    ):
        for index, value in enumerate(getattr(old, spread)):
            while len(new.param) <= index:
                new.param.add()
            setattr(new.param[index], field, value)
    return new


def _upgrade_input(net: Message, lines: Lines, input_line: int | None, notes: list[str]) -> Lines:
    """Turn inputs into an Input layer.  Inputs without shapes are kept only if a layer reads them and none writes
    them."""
    names, shapes = list(net.input), [list(shape.dim) for shape in net.input_shape]
    if not shapes:
        shapes = [list(net.input_dim[i : i + 4]) for i in range(0, len(net.input_dim), 4)]
    if not shapes:
        read = {blob for layer in net.layer for blob in layer.bottom}
        written = {blob for layer in net.layer for blob in layer.top if blob not in layer.bottom}
        names = [name for name in dict.fromkeys(names) if name in read - written]
    if names:
        partial = net.input_dim and not net.input_shape and len(net.input_dim) % 4
        if shapes and (len(shapes) != len(names) or partial):
            what = f"the net has {len(names)} 'input' fields; give each an 'input_shape', or each four 'input_dim'"
            raise InputError(what, line=input_line)
        layer = LayerParameter(name="input", type="Input", top=names)
        for dims in shapes:
            layer.input_param.shape.add(dim=dims)
        others = NetParameter(layer=net.layer)
        net.ClearField("layer")
        net.layer.append(layer)
        net.layer.extend(others.layer)
        lines = [input_line, *lines]
        notes.append(f"rewrote 'input' {', '.join(names)} as a layer of type Input")
    for field in ("input", "input_shape", "input_dim"):
        net.ClearField(field)
    return lines


def _freeze_statistics(net: Message, notes: list[str]) -> None:
    for layer in net.layer:
        if layer.type == "BatchNorm" and len(layer.param) == 3:
            if any(spec.lr_mult or spec.decay_mult for spec in layer.param):
                notes.append(f"layer '{layer.name}': set lr_mult and decay_mult of its statistics to 0")
            for spec in layer.param:
                spec.lr_mult = spec.decay_mult = 0


def _note_ignored_transforms(net: Message, notes: list[str]) -> None:
    """Add a note for the old transform fields of a `layer` block, which Caffe ignores silently."""
    for layer in net.layer:
        for block in _DATA_BLOCKS.values():
            ignored = [f for f in _MOVED_TO_TRANSFORM if layer.HasField(block) and getattr(layer, block).HasField(f)]
            for field in ignored:
                notes.append(f"layer '{layer.name}': {block}.{field} has no effect; move it to transform_param")


def upgrade_solver(solver: Message, path: str) -> list[str]:
    """Upgrade a SolverParameter that was read from `path`, in place; return the notes."""
    notes = upgrade_solver_type(solver)
    stem = os.path.splitext(path)[0]
    if not solver.snapshot_prefix:
        solver.snapshot_prefix = _utf8(stem)
        notes.append(f"no snapshot_prefix: snapshots are named {stem}_iter_N")
    elif os.path.isdir(solver.snapshot_prefix):
        solver.snapshot_prefix = _utf8(os.path.join(solver.snapshot_prefix, os.path.basename(stem)))
        notes.append(f"snapshot_prefix is a folder: snapshots are named {solver.snapshot_prefix}_iter_N")
    return notes


def _utf8(prefix: str) -> str:
    """Return a snapshot_prefix that comes from the name of a file; InputError if a message cannot hold it."""
    try:
        prefix.encode()
    except UnicodeEncodeError:
        raise InputError("would give its snapshots its own name, which is not UTF-8; add a snapshot_prefix") from None
    return prefix


def upgrade_solver_type(solver: Message) -> list[str]:
    """Rewrite the old `solver_type` of a SolverParameter in place; return the notes."""
    if not solver.HasField("solver_type"):
        return []
    if solver.HasField("type"):
        raise InputError("the solver has both 'type' and the old 'solver_type'; keep 'type'")
    solver.type = _SOLVER_TYPE[enum_name(solver, "solver_type")]
    solver.ClearField("solver_type")
    return [f'rewrote solver_type as type: "{solver.type}"']
