"""Predictions for people and programs: the classes with the highest scores, by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from layermem.errors import InputError
from layermem.utils.input_files import read_lines
from layermem.utils.units import format_share

SYNSET = re.compile(r"(n\d{8})\s+(\S.*)")  # "n01440764 tench, Tinca tinca"


class Label(NamedTuple):
    """The name of a class; `synset` is its number in WordNet, if the file has one."""

    name: str
    synset: str | None = None


@dataclass(frozen=True)
class Score:
    """The score of a class; `index` is its number, from 0."""

    index: int
    score: float
    label: Label | None = None


def read_labels(path: str, classes: int | None = None) -> list[Label]:
    """Read the name of each class: one per line, class 0 first; a synset number may precede it.

    classes   the number of classes of the net; InputError if the file has another number
    """
    lines = [line.strip() for line in read_lines(path, what="list of class names", names=True)]
    while lines and not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, start=1):
        if not line:
            raise InputError("is an empty line among the names; write one name for each class", path=path, line=number)
    if classes is not None and len(lines) != classes:
        raise InputError(
            f"has {len(lines):,} names for the {classes:,} classes of the net; write one for each, in their order",
            path=path,
        )
    return [Label(match[2], match[1]) if (match := SYNSET.fullmatch(line)) else Label(line) for line in lines]


def top_scores(row: np.ndarray, count: int, labels: Sequence[Label] | None = None) -> list[Score]:
    """The `count` classes with the highest scores of one item, highest first; among equal ones the first class."""
    scores = row.reshape(-1)
    if not np.isfinite(scores).all():
        raise InputError("its scores are NaN or infinite; use other weights, or correct the input")
    order = np.argsort(-scores, kind="stable")[:count]
    return [Score(int(i), float(scores[i]), labels[int(i)] if labels else None) for i in order]


def score_lines(scores: Iterable[Score]) -> list[str]:
    """A line for each class: "  0.9871    7  seven"."""
    return [f"{each.score:>8.4f}  {each.index:>4}{f'  {each.label.name}' if each.label else ''}" for each in scores]


def score_values(scores: Iterable[Score]) -> list[dict[str, object]]:
    """The scores as values for JSON."""
    values = []
    for each in scores:
        value: dict[str, object] = {"class": each.index, "score": each.score}
        if each.label is not None:
            value["name"] = each.label.name
            if each.label.synset is not None:
                value["synset"] = each.label.synset
        values.append(value)
    return values


class AccuracyCount:
    """Counts labelled items whose label has the highest score, and those where it is among the `shown` highest.

    As in Caffe's Accuracy layer, whose numbers these are, a class with the same score as the label's counts as higher.
    """

    def __init__(self, shown: int) -> None:
        self.shown = shown
        self.items = self.first = self.among = 0

    def add(self, label: int | None, row: np.ndarray) -> None:
        if label is not None:
            scores = row.reshape(-1)
            higher = int(np.count_nonzero(scores >= scores[label])) - 1 if 0 <= label < scores.size else scores.size
            self.items += 1
            self.first += higher < 1
            self.among += higher < self.shown

    def __str__(self) -> str:
        top = f", top-{self.shown} {format_share(self.among, self.items)}" if self.shown > 1 else ""
        return f"accuracy {format_share(self.first, self.items)}{top} of {self.items:,} items with a label"

    @property
    def values(self) -> dict[str, object]:
        return {"items": self.items, "first": self.first / self.items, f"top{self.shown}": self.among / self.items}
