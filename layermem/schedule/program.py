"""A program: the schedules that share one arena, with the predicted time of a training step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from layermem.planning.plan import Plan
from layermem.schedule.ir import Schedule
from layermem.schedule.simulate import Timeline


@dataclass(frozen=True)
class PersistentOffsets:
    """Offsets of the buffers that outlive a step, by name, in the device and host arenas, and the bytes they take."""

    device: Mapping[str, int] = field(default_factory=dict)
    device_bytes: int = 0
    host: Mapping[str, int] = field(default_factory=dict)
    host_bytes: int = 0


@dataclass(frozen=True, repr=False)
class Program:
    """The `schedules`, with the training step first, then updates and test nets.

    timeline      of the training step
    target_bytes  the target of the search for offsets: the same plan and target give the same program
    """

    schedules: tuple[Schedule, ...]
    persistent: PersistentOffsets
    timeline: Timeline
    arena_bytes: int
    host_bytes: int
    target_bytes: int = 0

    def __repr__(self) -> str:
        return f"<Program: {len(self.schedules)} schedules in {self.arena_bytes:,} bytes, first {self.schedules[0]!r}>"

    @staticmethod
    def of(
        schedules: Sequence[Schedule], persistent: PersistentOffsets, timeline: Timeline, target_bytes: int = 0
    ) -> Program:
        """The program whose arenas hold all of `schedules`."""
        arena_bytes = max(schedule.peak_bytes for schedule in schedules)
        host_bytes = max(schedule.host_peak_bytes for schedule in schedules)
        return Program(tuple(schedules), persistent, timeline, arena_bytes, host_bytes, target_bytes)

    @property
    def train(self) -> Schedule:
        return self.schedules[0]

    @property
    def plan(self) -> Plan:
        """The plan of the training step."""
        return self.train.plan

    @property
    def seconds(self) -> float:
        """Predicted seconds of the training step."""
        return self.timeline.seconds

    @property
    def max_live_bytes(self) -> int:
        return max(schedule.max_live_bytes for schedule in self.schedules)
