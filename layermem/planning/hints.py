"""Hints in a file next to the net, because Caffe's parser would reject them inside it.

    # train_val.prototxt.hints
    segment-ends  res*c           recomputed segments may end only at these layers
    keep          pool1  fc*      never recompute their outputs
    recompute     *_relu          always recompute theirs

A line is a word and globs of layer names; `#` begins a comment.  Parts of a layer have separate names, which
`show --fused` lists: lstm/unit_*.  The words are those of the command's options; `stage`
is the earlier word for `segment-ends` and is still read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from fnmatch import fnmatchcase
from pathlib import Path

from layermem.errors import InputError
from layermem.proto.text import decode
from layermem.utils.input_files import TEXT_LIMIT_BYTES, read_bytes


class PlacedGlob(str):
    """A glob of a hints file, with its place for messages."""

    path: str
    line: int

    @classmethod
    def at(cls, glob: str, path: str, line: int) -> PlacedGlob:
        placed = cls(glob)
        placed.path, placed.line = path, line
        return placed


@dataclass(frozen=True)
class Hints:
    """Restrictions of a user in addition to the budget.

    segment_ends     globs of layer names at whose outputs a segment that is recomputed may end (memonger's mirror
                    stages): under `sublinear` the last op of a segment, under `recompute-*` every op of a lower set
                     that nothing else in it depends on.  Without globs: anywhere.  `nested` has no segments
    keep, recompute  globs of layer names whose outputs every strategy that recomputes keeps, or recomputes
    host_budget_bytes  size of the host arena; None is no limit
    copy_limit_bytes   copy limit of plans that have one (Plan), if it is below the budget.  It is set by
                       budget_search.py, not by users, and is left out of the text of hints, because preparations of
                       strategies for all budgets do not depend on it
    """

    segment_ends: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    recompute: tuple[str, ...] = ()
    host_budget_bytes: int | None = None
    copy_limit_bytes: int | None = dataclass_field(default=None, repr=False)


WORDS = {"segment-ends": "segment_ends", "keep": "keep", "recompute": "recompute"}  # word -> field of Hints
EARLIER_WORDS = {"stage": "segment-ends"}


def read_hints(path: str | Path) -> Hints:
    """The hints in the file at `path`; InputError, with the line, for an unknown word or one without globs."""
    text = decode(read_bytes(path, what="hints file", limit=TEXT_LIMIT_BYTES), str(path), what="hints file")
    found: dict[str, tuple[str, ...]] = dict.fromkeys(WORDS.values(), ())
    for number, line in enumerate(text.splitlines(), start=1):
        word, *globs = line.partition("#")[0].split() or [""]
        word = EARLIER_WORDS.get(word, word)
        if not word:
            continue
        if word not in WORDS:
            raise InputError(f"'{word}' is not a hint; use one of {', '.join(WORDS)}", path=str(path), line=number)
        if not globs:
            raise InputError(f"'{word}' has no layers; add globs such as res*", path=str(path), line=number)
        found[WORDS[word]] += tuple(PlacedGlob.at(glob, str(path), number) for glob in globs)
    return Hints(found["segment_ends"], found["keep"], found["recompute"])


def hints_beside(net: str | Path) -> Hints:
    """The hints in the file with the net's name followed by `.hints`; no hints if there is no such file."""
    path = Path(f"{net}.hints")
    return read_hints(path) if os.path.isfile(path) else Hints()


def merge_hints(first: Hints, second: Hints) -> Hints:
    """Combine the globs of both hints."""
    return replace(
        first,
        segment_ends=first.segment_ends + second.segment_ends,
        keep=first.keep + second.keep,
        recompute=first.recompute + second.recompute,
        host_budget_bytes=first.host_budget_bytes if first.host_budget_bytes is not None else second.host_budget_bytes,
    )


def check_hints(hints: Hints, layers: Iterable[str]) -> None:
    """Raise InputError for a glob that matches no layer of the net: it is misspelled, or belongs to another net."""
    names = list(layers)
    for word, field in WORDS.items():
        for glob in getattr(hints, field):
            if not any(fnmatchcase(name, glob) for name in names):
                what = f"{word} '{glob}' matches no layer of the net; `layermem show` lists them"
                if isinstance(glob, PlacedGlob):
                    raise InputError(what, path=glob.path, line=glob.line)
                raise InputError(what)
