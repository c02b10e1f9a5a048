"""`caffe.net_spec`: nets written in Python (layermem/spec), whose fields are checked when the net is written."""

from typing import Any

from layermem.proto.schema import Message
from layermem.spec import Function, Layers, NetSpec, Parameters, Top, to_proto
from layermem.spec import P as params
from layermem.spec.fields import BLOCKS, SUFFIX, assign

__all__ = [
    "Function",
    "Layers",
    "NetSpec",
    "Parameters",
    "Top",
    "assign_proto",
    "layers",
    "param_name_dict",
    "params",
    "to_proto",
]

layers = Layers(lazy=True)


def param_name_dict() -> dict[str, str]:
    """Names of blocks without `_param`, by the type that each is named after: {"InnerProduct": "inner_product"}."""
    return {kind: block.removesuffix(SUFFIX) for kind, block in BLOCKS.items()}


def assign_proto(proto: Message, name: str, val: Any) -> None:
    """Set a field of a message to a Python value: a dict is a message, a list a repeated field."""
    assign(proto, name, val, proto.DESCRIPTOR.name)
