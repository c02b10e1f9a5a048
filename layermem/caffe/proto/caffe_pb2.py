"""`caffe.proto.caffe_pb2`: every message, enum and enum value of the schema that layermem reads, by its name.

    net = caffe_pb2.NetParameter()
    google.protobuf.text_format.Merge(open("net.prototxt").read(), net)
    caffe_pb2.PoolingParameter.MAX, caffe_pb2.TRAIN, caffe_pb2.Phase.Value("TEST")

The schema is BVLC Caffe's, with the fields of forks that layermem supports (layermem/proto/caffe.proto).
"""

from __future__ import annotations

from typing import Any

from google.protobuf import text_format as text_format  # scripts use it as google.protobuf.text_format
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from layermem.proto.schema import NetParameter, message_class
from layermem.utils.similar import did_you_mean

DESCRIPTOR = NetParameter.DESCRIPTOR.file
_MESSAGES = DESCRIPTOR.message_types_by_name
_ENUMS = DESCRIPTOR.enum_types_by_name
_VALUES = {value.name: value.number for enum in _ENUMS.values() for value in enum.values}


def __getattr__(name: str) -> Any:
    if name in _MESSAGES:
        return message_class(name)
    if name in _ENUMS:
        return EnumTypeWrapper(_ENUMS[name])
    if name in _VALUES:
        return _VALUES[name]
    if name.startswith("__"):
        raise AttributeError(f"module 'caffe_pb2' has no attribute '{name}'")
    known = [*_MESSAGES, *_ENUMS, *_VALUES]
    hint = did_you_mean(name, known) or "dir() lists what it has"
    raise AttributeError(f"Caffe's schema has no '{name}'; {hint}")


def __dir__() -> list[str]:
    return sorted(["DESCRIPTOR", *_MESSAGES, *_ENUMS, *_VALUES])
