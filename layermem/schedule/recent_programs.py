"""A cache of recently placed programs: if several strategies make the same plan, it is placed and checked once.

For example, if nothing is offloaded, strategies with copies make the same plan as plain reuse.  A placement without
fragmentation is optimal for its plan, so it is reused for every target of the search for offsets.  All targets below
the live bytes of a schedule are equivalent: the search then minimizes the bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import replace

from layermem.planning.plan import Plan
from layermem.schedule.ir import Instruction
from layermem.schedule.program import Program

KEPT = 6  # programs: those of deep nets are large


class RecentPrograms:
    """The last programs of one arena by their plans, and those with fragmentation also by their targets."""

    def __init__(self) -> None:
        self._programs: dict[tuple[Hashable, int | None], Program] = {}
        self._checked: deque[tuple[Instruction, ...]] = deque(maxlen=KEPT)  # instructions of training steps that passed

    def get(self, key: Hashable, target_bytes: int, plan: Plan, make: Callable[[], Program]) -> Program:
        """Return the cached program for `key` if it meets `target_bytes` or cannot be improved; otherwise make and
        cache it.  The result has `plan`, which may differ from the cached one in the name of its strategy."""
        least = self._programs.get((key, 0))
        target_bytes = 0 if least is not None and _is_for_least(least, target_bytes) else target_bytes
        program = self._programs.pop((key, None), None) or self._programs.pop((key, target_bytes), None) or make()
        target_bytes = 0 if _is_for_least(program, target_bytes) else target_bytes
        if len(self._programs) >= KEPT:
            del self._programs[next(iter(self._programs))]
        serves_all = program.arena_bytes == program.max_live_bytes
        self._programs[key, None if serves_all else target_bytes] = program  # the most recent one is last
        train = program.train  # the cached plan may differ in the name of its strategy
        return replace(program, schedules=(replace(train, plan=plan), *program.schedules[1:]))

    def check(self, program: Program, check: Callable[[], None]) -> None:
        """Run `check` unless it has passed for the same instructions."""
        instructions = program.train.instructions
        if not any(instructions is each for each in self._checked):
            check()
            self._checked.append(instructions)


def _is_for_least(program: Program, target_bytes: int) -> bool:
    """Whether the search for offsets minimizes the bytes, because no placement reaches the target."""
    return all(target_bytes <= schedule.max_live_bytes for schedule in program.schedules)
