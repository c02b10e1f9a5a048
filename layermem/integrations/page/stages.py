"""Folds the layers of a net into stages and blocks, by the numbers in their names.

    conv1 bn_conv1 pool1 | res2a_branch1 bn2a_branch1 ... | res2b_branch2a ... | res3a_branch1 ... | fc1000
    conv1                  res2  = res2a, res2b             res3 ...              (a single layer is not folded)

A stage is a sequence of layers with the same first number; a block is one with the same letters or second number after
it.  If a stage has more members than a picture can show, they are grouped into ranges.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

UNFOLDED_LAYERS = 12  # nets up to this number of layers are not folded
MANY = 32  # members of a group up to which it has no ranges
STAGE = re.compile(r"[^0-9]*[0-9]+")
BLOCK = re.compile(r"[^0-9]*([0-9]+)(?:[a-z]+[0-9]*|[_-][0-9]+(?![0-9]*x))?")
NUMBERS = re.compile(r"[0-9].*")


@dataclass(frozen=True)
class LayerGroup:
    """Layers `begin` to `end` (half-open) of a net.  `members` are groups; layers outside of these are direct
    members."""

    label: str
    begin: int
    end: int
    members: tuple[LayerGroup, ...] = ()


def fold(names: Sequence[str]) -> tuple[LayerGroup, ...]:
    """The outermost groups of layers with these names; none for a net with few layers."""
    if len(names) <= UNFOLDED_LAYERS:
        return ()
    return _ranges(names, _groups(names, 0, len(names), (_stage, _block)), 0, len(names))


def _stage(name: str) -> str | None:
    match = STAGE.match(name)
    return match[0] if match else _folder(name)


def _block(name: str) -> str | None:
    match = BLOCK.match(name)
    return match[0] if match else _folder(name)


def _folder(name: str) -> str | None:
    """The part of a name before its first slash."""
    first, slash, _ = name.partition("/")
    return first if slash else None


def _key(prefix: str | None) -> str | None:
    """The key that layers of one group share: the numbers, because bn2a and res2a belong together."""
    match = NUMBERS.search(prefix) if prefix is not None else None
    return match[0] if match else prefix


def _groups(
    names: Sequence[str], begin: int, end: int, levels: tuple[Callable[[str], str | None], ...]
) -> tuple[LayerGroup, ...]:
    if not levels or end - begin <= UNFOLDED_LAYERS:
        return ()
    prefix, *deeper = levels
    groups: list[LayerGroup] = []
    position = begin
    for key, run in groupby(names[begin:end], lambda name: _key(prefix(name))):
        first, position = position, position + len(list(run))
        if key is None or position - first < 2:
            continue
        inner = _groups(names, first, position, tuple(deeper))
        if position - first == end - begin:  # this level makes no distinction
            return inner
        labels = Counter(filter(None, map(prefix, names[first:position])))
        groups.append(LayerGroup(labels.most_common(1)[0][0], first, position, _ranges(names, inner, first, position)))
    return tuple(groups)


def _ranges(names: Sequence[str], groups: Sequence[LayerGroup], begin: int, end: int) -> tuple[LayerGroup, ...]:
    """Return `groups`; if they and the layers between them are too many, return ranges of them, and ranges of
    ranges."""
    members = _members(groups, begin, end)
    if len(members) <= MANY:
        return tuple(groups)
    count = -(-len(members) // MANY)
    size = -(-len(members) // min(count, MANY))
    ranges = []
    for start in range(0, len(members), size):
        part = members[start : start + size]
        inner = tuple(member for member in part if isinstance(member, LayerGroup))
        first, last = _place(part[0])[0], _place(part[-1])[1]
        label = f"{_name(names, part[0])} … {_name(names, part[-1])}"
        ranges.append(LayerGroup(label, first, last, _ranges(names, inner, first, last)))
    return tuple(ranges)


def _members(groups: Sequence[LayerGroup], begin: int, end: int) -> list[LayerGroup | int]:
    """The groups, and the layers (by index) that are in none, in order."""
    members: list[LayerGroup | int] = []
    position = begin
    for group in groups:
        members += [*range(position, group.begin), group]
        position = group.end
    return [*members, *range(position, end)]


def _place(member: LayerGroup | int) -> tuple[int, int]:
    return (member.begin, member.end) if isinstance(member, LayerGroup) else (member, member + 1)


def _name(names: Sequence[str], member: LayerGroup | int) -> str:
    return member.label if isinstance(member, LayerGroup) else names[member]
