"""Caffe's messages as Python classes, built from the descriptor in caffe.bin.

    caffe.proto --tools/make_descriptor.py--> caffe.bin --here--> NetParameter, SolverParameter, ...

The classes are in a separate descriptor pool, because other packages also register a `caffe.proto` and the default pool
of a process holds only one.  Without generated code there is no dependency on the protobuf release that generated it.

A second pool holds the same messages with the floats of BlobProto declared as bytes (`FastNetParameter`).  Packed
floats and bytes have the same encoding, so numpy reads weights without a Python object per value.  Files with unpacked
floats cannot be read this way; weights.py detects them and uses the plain classes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Message: TypeAlias = Any  # a dynamic protobuf message: its fields are not known to type checkers

PACKAGE = "caffe"
# Types of forks, and of BVLC Caffe since 2015, in nets of the `layers` format: names of V1LayerParameter.LayerType.
LATER_TYPES = {
    "AXPY": "Axpy",
    "BATCH_NORM": "BatchNorm",
    "BIAS": "Bias",
    "BN": "BN",
    "CROP": "Crop",
    "DENSE_IMAGE_DATA": "DenseImageData",
    "ELU": "ELU",
    "EMBED": "Embed",
    "INTERP": "Interp",
    "LOG": "Log",
    "NORMALIZE": "Normalize",
    "PERMUTE": "Permute",
    "PRELU": "PReLU",
    "PRIOR_BOX": "PriorBox",
    "PSROI_POOLING": "PSROIPooling",
    "REDUCTION": "Reduction",
    "RELU6": "ReLU6",
    "REORG": "Reorg",
    "RESHAPE": "Reshape",
    "ROI_POOLING": "ROIPooling",
    "SCALE": "Scale",
    "SHUFFLE_CHANNEL": "ShuffleChannel",
    "SMOOTH_L1_LOSS": "SmoothL1Loss",
    "SPP": "SPP",
    "TILE": "Tile",
    "UPSAMPLE": "Upsample",
}
LATER_NUMBERS = 88_001  # first number of those types, which forks number differently
LATER_FIELDS = 20_000_000  # added to the numbers of their parameters

AS_BYTES = ("data", "diff", "double_data", "double_diff")  # fields of BlobProto


def shipped_file() -> descriptor_pb2.FileDescriptorProto:
    """The descriptor of caffe.proto."""
    files = descriptor_pb2.FileDescriptorSet()
    files.ParseFromString(Path(__file__).with_name("caffe.bin").read_bytes())
    (file,) = files.file
    return file


def _with_later_layers(file: descriptor_pb2.FileDescriptorProto) -> descriptor_pb2.FileDescriptorProto:
    """Return a copy in which an old `layers` block may have the types and parameters of `layer` that are newer."""
    later = descriptor_pb2.FileDescriptorProto()
    later.CopyFrom(file)
    messages = {message.name: message for message in later.message_type}
    old = messages["V1LayerParameter"]
    names = {field.name for field in old.field}
    for field in messages["LayerParameter"].field:
        if field.name.endswith("_param") and field.name not in names:
            added = old.field.add()
            added.CopyFrom(field)
            added.number += LATER_FIELDS
    (types,) = (enum for enum in old.enum_type if enum.name == "LayerType")
    for number, name in enumerate(LATER_TYPES, LATER_NUMBERS):
        types.value.add(name=name, number=number)
    return later


def _with_floats_as_bytes(file: descriptor_pb2.FileDescriptorProto) -> descriptor_pb2.FileDescriptorProto:
    """Return a copy in which the packed arrays of BlobProto are repeated bytes: one element per packed run."""
    fast = descriptor_pb2.FileDescriptorProto()
    fast.CopyFrom(file)
    (blob,) = (message for message in fast.message_type if message.name == "BlobProto")
    for field in blob.field:
        if field.name in AS_BYTES:
            field.type = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
            field.ClearField("options")
    return fast


def _pool_of(file: descriptor_pb2.FileDescriptorProto) -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


_FILE = _with_later_layers(shipped_file())
_POOL = _pool_of(_FILE)
_FAST_POOL = _pool_of(_with_floats_as_bytes(_FILE))


def message_class(name: str, pool: descriptor_pool.DescriptorPool = _POOL) -> Message:
    """The class of the message `name`, such as "PoolingParameter"."""
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


# protobuf holds the class of a field's message weakly.  Without these references the garbage collector deletes it, and
# a message that another thread makes meanwhile has the deleted class.
_CLASSES = [message_class(message.name, pool) for pool in (_POOL, _FAST_POOL) for message in _FILE.message_type]


def copy_of(message: Message) -> Message:
    copied = type(message)()
    copied.CopyFrom(message)
    return copied


def enum_name(message: Message, field: str) -> str:
    """The name of an enum field's value: enum_name(layer.pooling_param, "pool") -> "MAX"."""
    values = message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number
    return str(values[getattr(message, field)].name)


NetParameter = message_class("NetParameter")
NetState = message_class("NetState")
NetStateRule = message_class("NetStateRule")
TransformationParameter = message_class("TransformationParameter")
LayerParameter = message_class("LayerParameter")
V1LayerParameter = message_class("V1LayerParameter")
ParamSpec = message_class("ParamSpec")
SolverParameter = message_class("SolverParameter")
SolverState = message_class("SolverState")
BlobShape = message_class("BlobShape")
BlobProto = message_class("BlobProto")
BlobProtoVector = message_class("BlobProtoVector")
Datum = message_class("Datum")
AnnotatedDatum = message_class("AnnotatedDatum")
FillerParameter = message_class("FillerParameter")

FastNetParameter = message_class("NetParameter", _FAST_POOL)
FastBlobProto = message_class("BlobProto", _FAST_POOL)
FastSolverState = message_class("SolverState", _FAST_POOL)

PHASES: dict[str, int] = {v.name: v.number for v in _POOL.FindEnumTypeByName(f"{PACKAGE}.Phase").values}
TRAIN, TEST = PHASES["TRAIN"], PHASES["TEST"]
