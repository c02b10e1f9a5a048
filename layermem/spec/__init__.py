"""Nets written in Python, with the API of pycaffe's net_spec."""

from layermem.spec.layers import L, Layers
from layermem.spec.net_spec import Function, NetSpec, Top, net_file, to_proto
from layermem.spec.params import P, Parameters

__all__ = ["Function", "L", "Layers", "NetSpec", "P", "Parameters", "Top", "net_file", "to_proto"]
