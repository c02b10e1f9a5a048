"""Equal plans of several strategies are placed and checked once."""

from dataclasses import replace

import pytest

from layermem.api import build_net, job_of
from layermem.planning.pipeline import Compiler
from layermem.schedule.recent_programs import KEPT, RecentPrograms


def compiled(job, strategy, budget_bytes=None):
    return Compiler(job.arena, strategy, job.hints).compile(budget_bytes)


def digits():
    return job_of(build_net("prototxt/digits/train_val.prototxt", "TRAIN", batch=4), device="reference")


def test_an_equal_plan_of_another_strategy_has_the_same_schedule_under_its_own_name():
    job = digits()
    first, second = compiled(job, "liveness"), compiled(job, "sublinear")
    again = compiled(job, "liveness")
    assert again.train.instructions is first.train.instructions and again.plan.strategy == "liveness"
    assert second.plan.strategy == "sublinear"
    assert compiled(digits(), "liveness").train.residencies == first.train.residencies


def test_a_program_without_fragmentation_serves_every_budget():
    job = digits()
    first = compiled(job, "liveness")
    assert first.arena_bytes == first.max_live_bytes
    assert compiled(job, "liveness", first.arena_bytes).train.instructions is first.train.instructions


@pytest.mark.parametrize("first_target", [0, 1])
def test_with_fragmentation_a_budget_that_it_may_reach_is_placed_anew(first_target):
    program, programs, made = compiled(digits(), "liveness"), RecentPrograms(), []
    program = replace(program, arena_bytes=program.arena_bytes + 256)
    live_bytes = program.max_live_bytes
    assert program.arena_bytes > live_bytes

    def make():
        made.append(1)
        return program

    for target_bytes in (first_target, 0, 1, live_bytes):  # no offsets reach these
        programs.get("plan", target_bytes, program.plan, make)
    assert len(made) == 1
    for target_bytes in (live_bytes + 1, live_bytes + 2, live_bytes + 1, 0):
        programs.get("plan", target_bytes, program.plan, make)
    assert len(made) == 3


def test_a_program_is_checked_once():
    job, checked = digits(), []
    program = compiled(job, "liveness")
    programs = RecentPrograms()
    for _ in range(2):
        programs.check(program, lambda: checked.append(1))
    assert checked == [1]


def test_only_the_last_programs_are_kept():
    program, programs, made = compiled(digits(), "liveness"), RecentPrograms(), []

    def make():
        made.append(1)
        return program

    for number in [*range(KEPT + 1), KEPT, 0]:
        programs.get(number, 0, program.plan, make)
    assert len(made) == KEPT + 2 and len(programs._programs) == KEPT
