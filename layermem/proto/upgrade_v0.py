"""Upgrades layers from the format of 2013 to the format of 2014.

    layers { layer { name: "conv1" type: "conv" kernelsize: 5 } bottom: "data" top: "conv1" }
    layers { name: "conv1" type: CONVOLUTION convolution_param { kernel_size: 5 } bottom: "data" top: "conv1" }

One message had the fields of all types; each field moves to the block of the layer's type.
A layer of type "padding" becomes the `pad` of the convolution or pooling that reads it.

    source  Caffe upgrade_proto.cpp, UpgradeV0LayerParameter, UpgradeV0PaddingLayers
"""

from __future__ import annotations

from layermem.errors import InputError
from layermem.proto.schema import Message, message_class

V1LayerParameter = message_class("V1LayerParameter")

# type -> (name of V1LayerParameter.LayerType, block of that type's fields)
_TYPES = {
    "accuracy": ("ACCURACY", None),
    "bnll": ("BNLL", None),
    "concat": ("CONCAT", "concat_param"),
    "conv": ("CONVOLUTION", "convolution_param"),
    "data": ("DATA", "data_param"),
    "dropout": ("DROPOUT", "dropout_param"),
    "euclidean_loss": ("EUCLIDEAN_LOSS", None),
    "flatten": ("FLATTEN", None),
    "hdf5_data": ("HDF5_DATA", "hdf5_data_param"),
    "hdf5_output": ("HDF5_OUTPUT", "hdf5_output_param"),
    "im2col": ("IM2COL", None),
    "images": ("IMAGE_DATA", "image_data_param"),
    "infogain_loss": ("INFOGAIN_LOSS", "infogain_loss_param"),
    "innerproduct": ("INNER_PRODUCT", "inner_product_param"),
    "lrn": ("LRN", "lrn_param"),
    "multinomial_logistic_loss": ("MULTINOMIAL_LOGISTIC_LOSS", None),
    "pool": ("POOLING", "pooling_param"),
    "relu": ("RELU", None),
    "sigmoid": ("SIGMOID", None),
    "softmax": ("SOFTMAX", None),
    "softmax_loss": ("SOFTMAX_LOSS", None),
    "split": ("SPLIT", None),
    "tanh": ("TANH", None),
    "window_data": ("WINDOW_DATA", "window_data_param"),
}
_RENAMED = {
    "biasterm": "bias_term",
    "kernelsize": "kernel_size",
    "batchsize": "batch_size",
    "shuffle_images": "shuffle",
}
_TRANSFORM = {"scale": "scale", "meanfile": "mean_file", "cropsize": "crop_size", "mirror": "mirror"}
_COPIED = ("name", "type", "blobs", "blobs_lr", "weight_decay")


def upgrade_v0(net: Message, lines: list[int | None], notes: list[str]) -> list[int | None]:
    """Upgrade the 2013 layers among `net.layers` in place; return the lines of the remaining layers."""
    if not any(outer.HasField("layer") for outer in net.layers):
        return lines
    lines = _fold_padding(net, lines, notes)
    notes.append(f"upgraded {len(net.layers)} layers of the format of 2013")
    for index, outer in enumerate(net.layers):
        if outer.HasField("layer"):
            line = lines[index] if index < len(lines) else None
            outer.CopyFrom(_v1_layer(outer, line, notes))
    return lines


def _fold_padding(net: Message, lines: list[int | None], notes: list[str]) -> list[int | None]:
    """Move the padding of each padding layer to its reader, and remove the layer."""
    writer_of: dict[str, Message] = {}  # blob -> the last layer that writes it
    for index, outer in enumerate(net.layers):
        line = lines[index] if index < len(lines) else None
        for position, blob in enumerate(outer.bottom):
            padding = writer_of.get(blob)
            if padding is None or padding.layer.type != "padding":
                continue
            if outer.layer.type not in ("conv", "pool") or len(outer.bottom) != 1 or len(padding.bottom) != 1:
                what = "reads a padding layer; only a conv or pool layer with a single bottom may"
                raise InputError(what, line=line, layer=outer.layer.name)
            outer.layer.pad = padding.layer.pad
            outer.bottom[position] = padding.bottom[0]
        writer_of.update(dict.fromkeys(outer.top, outer))
    kept = [i for i, outer in enumerate(net.layers) if outer.layer.type != "padding"]
    if len(kept) == len(net.layers):
        return lines
    folded = len(net.layers) - len(kept)
    notes.append(f"moved {folded} padding layer{'s' * (folded != 1)} to the pad of their readers")
    layers = [V1LayerParameter.FromString(net.layers[i].SerializePartialToString()) for i in kept]
    net.ClearField("layers")
    net.layers.extend(layers)
    return [lines[i] for i in kept] if lines else lines


def _v1_layer(outer: Message, line: int | None, notes: list[str]) -> Message:
    old = outer.layer
    if old.type not in _TYPES:
        known = ", ".join(_TYPES)
        raise InputError(
            f"has type '{old.type}', which is not in the format of 2013; it has: {known}", line=line, layer=old.name
        )
    v1_type, block = _TYPES[old.type]
    new = V1LayerParameter(name=old.name, type=V1LayerParameter.LayerType.Value(v1_type))
    new.bottom.extend(outer.bottom)
    new.top.extend(outer.top)
    for field in ("blobs", "blobs_lr", "weight_decay"):
        getattr(new, field).extend(getattr(old, field))
    for field, value in old.ListFields():
        if field.name in _COPIED:
            continue
        if field.name in _TRANSFORM:
            setattr(new.transform_param, _TRANSFORM[field.name], value)
        elif field.name == block:  # hdf5_output_param, the only block of that format
            getattr(new, field.name).CopyFrom(value)
        elif not _put(new, block, _RENAMED.get(field.name, field.name.removeprefix("det_")), value):
            notes.append(f"layer '{old.name}': dropped '{field.name}', which type '{old.type}' does not have")
    return new


def _put(layer: Message, block: str | None, name: str, value: Message) -> bool:
    """Set field `name` of the layer's block; False if there is no such field."""
    if block is None or name not in getattr(layer, block).DESCRIPTOR.fields_by_name:
        return False
    target = getattr(layer, block)
    if isinstance(value, (bool, int, float, str)):
        if hasattr(getattr(target, name), "append"):
            getattr(target, name).append(value)
        else:
            setattr(target, name, value)
    else:
        getattr(target, name).CopyFrom(value)
    return True
