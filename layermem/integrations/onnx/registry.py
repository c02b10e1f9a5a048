"""Exporters by layer type: each writes the operators of one layer.

@exports("ReLU", operators="Relu, LeakyRelu")       REFUSED  types without operators in ONNX, with reasons
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from layermem.integrations.onnx.graph import Piece

Write = Callable[[Piece], None]


class Exporter(NamedTuple):
    """The function that writes layers of a type, and its operators, for the documentation.

    whole   whether it takes a layer of several parts (layers/composite.py) in its form in the prototxt
    """

    write: Write
    operators: str
    whole: bool


EXPORTERS: dict[str, Exporter] = {}

_DETECTIONS = "makes a number of rows that depends on the values; export the net up to its bottoms"
REFUSED: dict[str, str] = {
    "YoloDetectionOutput": _DETECTIONS,
    "Yolov3DetectionOutput": _DETECTIONS,
    "DetectionEvaluate": "compares with true boxes, which a deployed net does not have; remove it",
    "Filter": "makes a number of items that depends on the values; export the net up to its bottoms",
    "Python": "runs code that is not in the net; write the layer as others, or remove it",
    "ROIPooling": "rounds its windows otherwise than MaxRoiPool of ONNX; export the net up to its bottoms",
    "PSROIPooling": "has no operator in ONNX; export the net up to its bottoms",
}


def exports(*types: str, operators: str, whole: bool = False) -> Callable[[Write], Write]:
    """Register a function that exports layers of these types."""

    def register(write: Write) -> Write:
        for each in types:
            assert each not in EXPORTERS and each not in REFUSED, each
            EXPORTERS[each] = Exporter(write, operators, whole)
        return write

    return register
