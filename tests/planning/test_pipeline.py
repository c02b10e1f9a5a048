"""The pipeline from graphs to a checked program: any strategy, saved plan or function, any budget."""

from dataclasses import replace

import pytest

from layermem.errors import BudgetError
from layermem.planning import pipeline
from layermem.planning.pipeline import Compiler
from layermem.planning.plan import Plan, program_order
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.schedule.check import UnsafeSchedule
from layermem.schedule.simulate import simulate
from tests.compiling import compile
from tests.planning.chains import UNIT, a_second_each, chain

NET = chain(8)
COSTS = a_second_each(NET)


def test_a_program_has_the_bytes_and_seconds_of_its_placed_schedule():
    program = compile([NET], strategy="liveness", costs=COSTS)
    assert program.arena_bytes == program.train.peak_bytes == 10 * UNIT
    assert program.seconds == simulate(program.train, COSTS).seconds == 18
    assert program.plan.strategy == "liveness"


def test_a_budget_brings_auto_and_no_budget_liveness():
    assert compile([NET], costs=COSTS).plan.strategy == "liveness"
    within = compile([NET], costs=COSTS, budget_bytes=6 * UNIT)
    assert within.plan.strategy == "auto" and within.arena_bytes <= 6 * UNIT


def test_below_the_minimum_it_is_refused_with_the_minimum():
    with pytest.raises(BudgetError) as refusal:
        compile([NET], strategy="recompute", costs=COSTS, budget_bytes=6 * UNIT - 1)
    assert (refusal.value.budget_bytes, refusal.value.minimum_bytes) == (6 * UNIT - 1, 6 * UNIT)
    assert compile([NET], strategy="recompute", costs=COSTS, budget_bytes=6 * UNIT).arena_bytes == 6 * UNIT


def test_a_saved_plan_and_a_function_are_compiled_as_they_are():
    plan = Plan("by hand", (*program_order(NET)[:10], "f1.forward", *program_order(NET)[10:]))

    def mine(graph, costs, budget_bytes, evaluator, hints):
        return plan

    for choice in (plan, mine):
        assert compile([NET], strategy=choice, costs=COSTS).plan == plan
        with pytest.raises(BudgetError):
            compile([NET], strategy=choice, costs=COSTS, budget_bytes=UNIT)


def test_a_compiler_answers_one_budget_after_another():
    made = Compiler(ArenaPlanner([NET], COSTS), "recompute")
    assert [made.compile(units * UNIT).seconds for units in (10, 9, 6, 10)] == [18, 19, 22, 18]


def test_a_program_is_checked_before_it_is_given_away(monkeypatch):
    """Placement that puts everything at offset 0."""

    place_well = pipeline.place

    def place(lowered, **options):
        schedule = place_well(lowered, **options)
        return replace(schedule, residencies=tuple(r._replace(offset=0) for r in schedule.residencies))

    monkeypatch.setattr(pipeline, "place", place)
    with pytest.raises(UnsafeSchedule):
        compile([NET], strategy="liveness", costs=COSTS)
