"""Finds the name that was probably meant by a mistyped one.

nearest("num_outputs", ["num_output", "pad"]) -> "num_output"     one edit
nearest("cache", ["scale", "source"]) -> None                     three edits, more than a word of five letters may have
"""

from __future__ import annotations

from collections.abc import Iterable

ENDING = "_param"  # common to the names of blocks, so its letters do not count
SHORTEST = 4  # letters: of shorter names many are one edit apart by chance, as RPN and RNN, or GELU and ELU, are
LONGEST = 100  # longer names are not compared


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the name in `known` with the fewest edits (insert, delete, replace, exchange), if few for its length."""
    best: tuple[int, str] | None = None
    for each in known:
        ours, theirs = _stems(name.lower(), each.lower())
        limit = _allowed_edits(min(len(ours), len(theirs)))
        if min(len(ours), len(theirs)) < SHORTEST and not _are_alike(ours, theirs):
            continue
        if abs(len(ours) - len(theirs)) <= limit and len(ours) <= LONGEST:
            edits = _edits(ours, theirs)
            if edits <= limit and (best is None or edits < best[0]):
                best = edits, each
    return None if best is None else best[1]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "did you mean 'num_output'?", or "" if no name is near."""
    near = nearest(name, known)
    return "" if near is None else f"did you mean '{near}'?"


def _are_alike(a: str, b: str) -> bool:
    """Whether two short names have the same letters, or one is the begin of the other."""
    return sorted(a) == sorted(b) or a.startswith(b) or b.startswith(a)


def _stems(a: str, b: str) -> tuple[str, str]:
    both = a.endswith(ENDING) and b.endswith(ENDING)
    return (a.removesuffix(ENDING), b.removesuffix(ENDING)) if both else (a, b)


def _allowed_edits(letters: int) -> int:
    return 1 if letters < 8 else 2 if letters < 14 else 3


def _edits(a: str, b: str) -> int:
    """Return the optimal string alignment distance."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        earlier, before, row = before, row, [i]
        for j, y in enumerate(b, start=1):
            edits = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                edits = min(edits, earlier[j - 2] + 1)
            row.append(edits)
    return row[-1]
