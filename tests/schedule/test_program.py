"""A program: arenas as large as its largest schedule needs."""

from dataclasses import replace

from layermem.schedule.program import PersistentOffsets, Program
from layermem.schedule.simulate import Timeline
from tests.schedule.small_graphs import scheduled, small_graph, small_plan


def test_arenas_hold_all_schedules_and_the_time_is_that_of_training():
    train = replace(scheduled(small_graph(), small_plan()), peak_bytes=3000, host_peak_bytes=700, max_live_bytes=2000)
    test = replace(
        train, peak_bytes=4000, host_peak_bytes=200, max_live_bytes=2500, plan=replace(train.plan, strategy="b")
    )
    program = Program.of([train, test], PersistentOffsets(), Timeline((0.0,), (2.5,), 2.5, 2.0))
    assert (program.arena_bytes, program.host_bytes, program.max_live_bytes) == (4000, 700, 2500)
    assert program.train is train and program.plan is train.plan and program.seconds == 2.5
