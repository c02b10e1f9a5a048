"""The package `onnx`, an optional dependency: its helpers, checker and shape inference."""

from __future__ import annotations

from typing import Any

from layermem.errors import InputError


def onnx_library() -> Any:
    """Return the modules of `onnx` that are used here; InputError that names the extra if it is not installed."""
    try:
        import onnx
        import onnx.checker
        import onnx.external_data_helper
        import onnx.helper
        import onnx.numpy_helper
        import onnx.reference
    except ImportError:
        raise InputError("needs the package onnx; install it with pip install 'layermem[onnx]'") from None
    return onnx
