"""Importers, one module per family; importing this package registers all of them."""

from layermem.onnx.importers import arithmetic, shape, windows

__all__ = ["arithmetic", "shape", "windows"]
