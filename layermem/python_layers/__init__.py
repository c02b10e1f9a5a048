"""Layers that users write in Python, with the interface of Caffe's Python layers."""

from layermem.python_layers.contract import Blob, PythonLayer
from layermem.python_layers.user_layer import UserLayer

__all__ = ["Blob", "PythonLayer", "UserLayer"]
