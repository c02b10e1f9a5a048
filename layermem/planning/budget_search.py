"""A plan that fits by its bytes in use and not when placed: the quickest program that does, found by asking for less.

    asked   budget - 2 over, - 4 over, - 8 over ...    until a program fits        over: bytes above the budget
            then halfway between that and the last one that was too much, while a quicker one may be there

Where no program can be much quicker than the one at hand, the search ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar


class Timed(Protocol):
    @property
    def seconds(self) -> float: ...


class Program(Protocol):
    """What the search reads of a placed program (schedule/arena_planner.py)."""

    @property
    def arena_bytes(self) -> int: ...

    @property
    def max_live_bytes(self) -> int: ...

    def timeline(self) -> Timed: ...


DOUBLINGS = 6
HALVINGS = 4
AS_GOOD = 1.001  # times the seconds of the program that was over the budget: no use to look further

P = TypeVar("P", bound=Program)
Ask = Callable[[int], "P | None"]  # bytes -> the program for them, placed; None if its plan was tried before


def fastest_under_budget(budget: int, first: P, ask: Ask[P]) -> P | None:
    """The quickest program found in `budget` bytes, or None; `first` is placed, and over it."""
    asked, too_much = budget, budget
    best: P | None = None
    over = first.arena_bytes - budget
    for doubling in range(1, DOUBLINGS + 1):
        asked = budget - (over << doubling)
        if asked <= 0:
            return None
        found = ask(asked)
        if found is not None and found.arena_bytes <= budget:
            best = found
            break
        if found is not None and found.max_live_bytes > asked:
            return None  # the strategy knows nothing so lean
        too_much = asked
    if best is None:
        return None
    good = first.timeline().seconds * AS_GOOD
    for _ in range(HALVINGS):
        if best.timeline().seconds <= good or too_much - asked < over:
            break
        middle = (asked + too_much) // 2
        found = ask(middle)
        if found is None or found.arena_bytes > budget:
            too_much = middle
            continue
        asked = middle
        best = min(best, found, key=lambda program: program.timeline().seconds)
    return best
