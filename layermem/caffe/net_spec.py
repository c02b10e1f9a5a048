"""`caffe.net_spec`: nets written in Python (layermem/spec)."""

from layermem.spec import Function, Layers, NetSpec, Parameters, Top, to_proto
from layermem.spec import L as layers
from layermem.spec import P as params

__all__ = ["Function", "Layers", "NetSpec", "Parameters", "Top", "layers", "params", "to_proto"]
