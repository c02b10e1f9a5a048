"""Converts nets and weights to ONNX models, and ONNX models to nets and weights.

    export(net, path, weights)    a net of phase TEST to a .onnx file
    convert(path, net)            a .onnx file to a prototxt, with the weights next to it
    load(path)                    a .onnx file to a message and arrays

It needs the package `onnx`: pip install 'layermem[onnx]'.
"""

from layermem.integrations.onnx.exporting import Exported, export, export_model
from layermem.integrations.onnx.importing import Imported, convert, load

__all__ = ["Exported", "Imported", "convert", "export", "export_model", "load"]
