"""The mean average precision of a test, from the tops of its DetectionEvaluate layers.

    precision.add(values)        adds a batch: arrays by blob
    precision.mean(blob)         the mean over the classes with a row of true boxes; a class without a detection counts
                                 0

A class's detections, the highest score first, give a curve of precision and recall.  Its area, by version:

    Integral      sum of precision times the step in recall
    MaxIntegral   likewise, with the highest precision at that recall or a larger one (VOC 2012)
    11point       mean of these highest precisions at the recalls 0, 0.1 .. 1 (VOC 2007)

source  solver.cpp (TestDetection) and bbox_util.cpp (ComputeAP) of the SSD fork of Caffe
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from layermem.graph.net import Net
from layermem.ops.detection import EVALUATION, UNUSED

VERSIONS = ("Integral", "MaxIntegral", "11point")


class AveragePrecision:
    """Collects the evaluations of one test of `net`."""

    def __init__(self, net: Net, version: str = VERSIONS[0]):
        self.version = version
        self.tops = tuple(node.tops[0] for node in net.nodes if node.layer.type == "DetectionEvaluate")
        self._rows: dict[str, list[np.ndarray]] = {top: [] for top in self.tops}

    def add(self, values: Mapping[str, np.ndarray]) -> None:
        for top, rows in self._rows.items():
            if top in values:
                table = np.asarray(values[top], np.float64).reshape(-1, EVALUATION)
                rows.append(table[table[:, 1] != UNUSED])

    def mean(self, top: str) -> float:
        rows = np.concatenate(self._rows[top])
        of_class, found = rows[rows[:, 0] == UNUSED], rows[rows[:, 0] != UNUSED]
        found = found[(found[:, 3] != 0) | (found[:, 4] != 0)]  # neither: a difficult box, which does not count
        labels = np.unique(of_class[:, 1])
        areas = []
        for label in labels:
            boxes = of_class[of_class[:, 1] == label, 2].sum()
            mine = found[found[:, 1] == label]
            mine = mine[np.argsort(-mine[:, 2], kind="stable")]
            areas.append(average_precision(mine[:, 3], boxes, self.version))
        return float(np.sum(areas) / max(1, len(areas)))


def average_precision(right: np.ndarray, boxes: float, version: str) -> float:
    """The area under the curve of detections: `right` holds 1 for right ones, by falling score; `boxes` is the number
    of true boxes."""
    if not len(right) or not boxes:
        return 0.0
    hits = np.cumsum(right)
    precision, recall = hits / np.arange(1, len(right) + 1), hits / boxes
    highest = np.maximum.accumulate(precision[::-1])[::-1]
    if version == "11point":
        at_least = [highest[recall >= tenth / 10] for tenth in range(11)]
        return float(sum(values[0] for values in at_least if len(values)) / 11)
    steps = np.diff(recall, prepend=0.0)
    return float(((highest if version == "MaxIntegral" else precision) * steps).sum())
