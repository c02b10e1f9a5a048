"""Importers, one module per family; importing this package registers all of them."""

from layermem.integrations.onnx.importers import arithmetic, shape, windows

__all__ = ["arithmetic", "shape", "windows"]
