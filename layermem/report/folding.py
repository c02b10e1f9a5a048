"""Finds repeated stages of a net: sequences of boxes that repeat with the same kinds and wiring.

    index      0    1  2  3   4  5  6   7  8  9   10
    kind       stem a  b  c   a  b  c   a  b  c   loss        one fold: first 1, period 3, repeats 3

Two boxes are wired equally if each of their inputs is at the same distance before them, or is the same box.  Folds do
not overlap; the one that removes most boxes is chosen first.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

MAX_PERIOD = 512  # boxes of a stage
MAX_INPUTS = 8  # most inputs of a box that may be folded


class Fold(NamedTuple):
    """Boxes first .. first + period - 1 occur `repeats` times in succession."""

    first: int
    period: int
    repeats: int


def find_folds(kinds: Sequence[Hashable], inputs: Sequence[Sequence[int]]) -> list[Fold]:
    """The folds of boxes of these kinds, with the indices of the boxes that each one reads; in order of `first`."""
    count = len(kinds)
    numbers: dict[Hashable, int] = {}
    kind = np.array([numbers.setdefault(each, len(numbers)) for each in kinds], np.int64)
    sources = np.full((count, MAX_INPUTS), -1, np.int64)
    for index, each in enumerate(inputs):
        if len(each) > MAX_INPUTS:
            kind[index] = -1 - index  # unequal to all others
        else:
            sources[index, : len(each)] = sorted(each)
    found = [fold for period in range(1, min(MAX_PERIOD, count // 2) + 1) for fold in _of_period(kind, sources, period)]
    found.sort(key=lambda fold: (-(fold.repeats - 1) * fold.period, fold.period, fold.first))
    taken = np.zeros(count, bool)
    chosen = []
    for fold in found:
        boxes = slice(fold.first, fold.first + fold.period * fold.repeats)
        if not taken[boxes].any():
            taken[boxes] = True
            chosen.append(fold)
    return sorted(chosen)


def _of_period(kind: np.ndarray, sources: np.ndarray, period: int) -> list[Fold]:
    """The longest repetitions with one period."""
    before, after = sources[:-period], sources[period:]
    shifted = (after == before + period) & (before >= 0)
    equal = (kind[:-period] == kind[period:]) & (shifted | (before == after)).all(1)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], equal, [False]]).astype(np.int8)))
    folds = []
    for begin, end in zip(edges[::2], edges[1::2]):  # boxes begin .. end - 1 equal the box one period later
        count = int(end - begin) // period + 1
        if count > 1:
            folds.append(Fold(int(begin), period, count))
    return folds
