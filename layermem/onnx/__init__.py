"""Nets and weights as ONNX models, and ONNX models as nets and weights.

    export(net, path, weights)    a net of phase TEST to a .onnx file

It needs the package `onnx`: pip install 'layermem[onnx]'.
"""

from layermem.onnx.exporting import Exported, export, export_model

__all__ = ["Exported", "export", "export_model"]
