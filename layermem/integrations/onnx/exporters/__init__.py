"""Exporters, one module per family; importing this package registers all of them."""

from layermem.integrations.onnx.exporters import activation, detection, normalization, others, pooling, products, shape

__all__ = ["activation", "detection", "normalization", "others", "pooling", "products", "shape"]
