"""Caffe's messages as Python classes, built from the descriptor in caffe.bin.

    caffe.proto --tools/make_descriptor.py--> caffe.bin --here--> NetParameter, SolverParameter, ...

The classes are in a descriptor pool of this package: other packages register a `caffe.proto` too, and the default pool
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
AS_BYTES = ("data", "diff", "double_data", "double_diff")  # fields of BlobProto


def shipped_file() -> descriptor_pb2.FileDescriptorProto:
    """The descriptor of caffe.proto."""
    files = descriptor_pb2.FileDescriptorSet()
    files.ParseFromString(Path(__file__).with_name("caffe.bin").read_bytes())
    (file,) = files.file
    return file


def _with_floats_as_bytes(file: descriptor_pb2.FileDescriptorProto) -> descriptor_pb2.FileDescriptorProto:
    """A copy in which the packed arrays of BlobProto are repeated bytes: one element for each packed run."""
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


_FILE = shipped_file()
_POOL = _pool_of(_FILE)
_FAST_POOL = _pool_of(_with_floats_as_bytes(_FILE))


def message_class(name: str, pool: descriptor_pool.DescriptorPool = _POOL) -> Message:
    """The class of the message `name`, such as "PoolingParameter"."""
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


def enum_name(message: Message, field: str) -> str:
    """The name of an enum field's value: enum_name(layer.pooling_param, "pool") -> "MAX"."""
    values = message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number
    return str(values[getattr(message, field)].name)


NetParameter = message_class("NetParameter")
NetState = message_class("NetState")
NetStateRule = message_class("NetStateRule")
LayerParameter = message_class("LayerParameter")
V1LayerParameter = message_class("V1LayerParameter")
ParamSpec = message_class("ParamSpec")
SolverParameter = message_class("SolverParameter")
SolverState = message_class("SolverState")
BlobShape = message_class("BlobShape")
BlobProto = message_class("BlobProto")
BlobProtoVector = message_class("BlobProtoVector")
Datum = message_class("Datum")
FillerParameter = message_class("FillerParameter")

FastNetParameter = message_class("NetParameter", _FAST_POOL)
FastBlobProto = message_class("BlobProto", _FAST_POOL)
FastSolverState = message_class("SolverState", _FAST_POOL)

PHASES: dict[str, int] = {v.name: v.number for v in _POOL.FindEnumTypeByName(f"{PACKAGE}.Phase").values}
TRAIN, TEST = PHASES["TRAIN"], PHASES["TEST"]
