"""Which classes a net takes for which, over the batches of a test.

    counts = Confusion(net)      of the first Accuracy layer, or without one of the first SoftmaxWithLoss
    counts.blobs                 its scores and labels, which the test must copy to the host
    counts.add(values)           adds a batch: arrays by blob
    counts.matrix                [true class, class of the highest score] the number of items

Of equal scores that of the first class counts as the highest.  Labels that the layer ignores, or that are no class, do
not count.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from layermem.errors import InputError
from layermem.graph.net import Net


class Confusion:
    """The counts of one net.  InputError if it has no layer that compares scores with labels."""

    def __init__(self, net: Net):
        nodes = [node for node in net.nodes if node.layer.compares_classes]
        if not nodes:
            what = (
                "has no Accuracy and no SoftmaxWithLoss layer, so it has no classes to compare; add one in phase TEST"
            )
            raise InputError(what, path=str(net.path))
        node = next((node for node in nodes if node.layer.is_score), nodes[0])
        record: Any = node.layer.record
        self.blobs = node.bottoms
        self.axis, self.classes, self.ignore_label = record.along, record.classes, record.ignore_label
        self.matrix = np.zeros((self.classes, self.classes), np.int64)

    def add(self, values: Mapping[str, np.ndarray]) -> None:
        scores, labels = (values[blob] for blob in self.blobs)
        taken = np.argmax(scores, axis=self.axis).ravel()
        truth = np.asarray(labels).ravel().astype(np.int64)
        counts = (truth >= 0) & (truth < self.classes)
        if self.ignore_label is not None:
            counts &= truth != self.ignore_label
        np.add.at(self.matrix, (truth[counts], taken[counts]), 1)

    def rows(self, names: Sequence[str] | None = None) -> list[list[str]]:
        """For each class: its name, the items, those that were taken for it, and what the others were mostly taken
        for."""
        names = names or [str(number) for number in range(self.classes)]
        rows = []
        for number, (name, line) in enumerate(zip(names, self.matrix, strict=True)):
            items, right = int(line.sum()), int(line[number])
            others = np.where(np.arange(self.classes) == number, 0, line)
            other = int(np.argmax(others))
            mistake = f"{names[other]} ({others[other]:,})" if others[other] else ""
            rows.append([name, f"{items:,}", f"{right:,}", f"{right / items:.1%}" if items else "", mistake])
        return rows

    def values(self, names: Sequence[str] | None = None) -> dict[str, object]:
        """The classes, the share of each that is right (None without items), and the matrix, as values for JSON."""
        items = self.matrix.sum(axis=1)
        shares = [int(right) / int(count) if count else None for right, count in zip(self.matrix.diagonal(), items)]
        return {
            "classes": list(names) if names else [*range(self.classes)],
            "class_accuracy": shares,
            "confusion": self.matrix.tolist(),
        }

    def csv(self, names: Sequence[str] | None = None) -> bytes:
        """The matrix as a table: a line for each true class, a column for each class that items were taken for."""
        text = io.StringIO()
        names = names or [str(number) for number in range(self.classes)]
        csv.writer(text, lineterminator="\n").writerows(
            [["true", *names], *([name, *line] for name, line in zip(names, self.matrix.tolist()))]
        )
        return os.fsencode(text.getvalue())
