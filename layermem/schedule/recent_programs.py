"""Programs that were placed of late: where several strategies make the same plan, it is placed and checked once.

Where nothing is offloaded, for example, the plans of strategies that copy are those of plain reuse.  A program without
fragmentation takes as few bytes as any of its plan: it serves every target that a search for offsets may have.  All
targets that the live bytes of each schedule exceed are one: the search is for the least bytes.
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
    """The last programs of one arena, by their plans; those with fragmentation by their targets too."""

    def __init__(self) -> None:
        self._programs: dict[tuple[Hashable, int | None], Program] = {}
        self._checked: deque[tuple[Instruction, ...]] = deque(maxlen=KEPT)  # of training steps, not in use elsewhere

    def get(self, key: Hashable, target_bytes: int, plan: Plan, make: Callable[[], Program]) -> Program:
        """The program of `plan`, made unless there is one for `key` that a search for `target_bytes` may end with."""
        least = self._programs.get((key, 0))
        target_bytes = 0 if least is not None and _is_for_least(least, target_bytes) else target_bytes
        program = self._programs.pop((key, None), None) or self._programs.pop((key, target_bytes), None) or make()
        target_bytes = 0 if _is_for_least(program, target_bytes) else target_bytes
        if len(self._programs) >= KEPT:
            del self._programs[next(iter(self._programs))]
        serves_all = program.arena_bytes == program.max_live_bytes
        self._programs[key, None if serves_all else target_bytes] = program  # the most recent one is last
        train = program.train  # its plan may differ in the name of its strategy
        return replace(program, schedules=(replace(train, plan=plan), *program.schedules[1:]))

    def check(self, program: Program, check: Callable[[], None]) -> None:
        """Run `check` unless it has passed for the same instructions."""
        instructions = program.train.instructions
        if not any(instructions is each for each in self._checked):
            check()
            self._checked.append(instructions)


def _is_for_least(program: Program, target_bytes: int) -> bool:
    """Whether the search for offsets is for the least bytes, since none reach the target."""
    return all(target_bytes <= schedule.max_live_bytes for schedule in program.schedules)
