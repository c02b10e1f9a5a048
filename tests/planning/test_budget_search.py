"""The search below a budget that placement misses, and the programs that it leads to."""

import random
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace

import pytest

from layermem.errors import BudgetError
from layermem.planning.budget_search import BudgetSearch, fastest_under_budget, ladder_step, rung_of
from layermem.planning.hints import Hints
from layermem.planning.pipeline import Compiler
from layermem.planning.plan import Plan
from layermem.planning.registry import MINIMUM_MEMORY, StrategyEntry, as_entry
from layermem.planning.settings import SETTINGS
from layermem.planning.strategies import STRATEGIES
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.utils.units import ALIGN
from tests.planning.jobs import solver_job

BUDGET = 100_000
STEP = ladder_step(BUDGET)
NEAR = rung_of(BUDGET - STEP, BUDGET)  # the first request, unless twice the miss is nearer


@dataclass(frozen=True)
class PlacedPlan:
    """What a strategy makes of `asked` bytes: it uses all of them, and placing them takes `wasted` more."""

    asked: int
    wasted: int
    least: int = 0
    unhindered: float = 1.0

    @property
    def max_live_bytes(self):
        return max(self.asked, self.least)

    @property
    def arena_bytes(self):
        return self.max_live_bytes + self.wasted

    @property
    def seconds(self):
        return self.unhindered + (BUDGET - self.max_live_bytes) / BUDGET


def searched(wasted, **more):
    """The program found where `wasted(asked)` bytes lie between those in use, and the budgets asked for."""
    asked = []

    def ask(nbytes):
        assert nbytes not in asked and 0 < nbytes < BUDGET
        asked.append(nbytes)
        return PlacedPlan(nbytes, wasted(nbytes), **more)

    return fastest_under_budget(BUDGET, PlacedPlan(BUDGET, wasted(BUDGET), **more), ask), asked


def rungs(*requests):
    return [rung_of(request, BUDGET) for request in requests]


def test_requests_of_neighbouring_budgets_are_the_same_rungs():
    for request in (BUDGET // 2, 97_900, 99_700):
        assert rung_of(request, BUDGET) == rung_of(request + 20, BUDGET + 200) <= request
        assert request - rung_of(request, BUDGET) < ladder_step(request)
    assert rung_of(BUDGET - 100, BUDGET) == BUDGET - 100  # nearer than a rung


@pytest.mark.parametrize("budget", range(99_500, 100_500, 100))
def test_requests_below_the_fewest_bytes_do_not_end_the_search_above_them(budget):
    """Of the plans between those of the fewest bytes, 98 500, and the budget only the lower ones fit when placed."""
    placed: dict[int, PlacedPlan] = {}

    def ask(nbytes):
        live_bytes = max(nbytes, 98_500)
        return placed.setdefault(live_bytes, PlacedPlan(live_bytes, 0 if live_bytes < 98_850 else 60_000))

    found = fastest_under_budget(budget, ask(budget), ask)
    assert found.asked == 98_816  # the highest rung below 98 850


def _remembered(wasted, rng, nbytes):
    return wasted.setdefault(nbytes, rng.randint(1, 9000))


@pytest.mark.parametrize("over", [1, 300, 1500])
def test_the_search_ends_near_the_largest_budget_that_fits(over):
    found, asked = searched(lambda nbytes: over)
    assert asked[0] == NEAR if 2 * over > STEP else BUDGET - 2 * over
    # By `over` and no less, since the rest is not in use; and by less than a step of the ladder if it is farther.
    assert BUDGET - 2 * over - STEP < found.asked <= BUDGET - over


def test_one_placement_that_misses_by_far_does_not_decide_how_far_the_search_goes():
    """A program far over the budget: those for a little less fit, and are quicker than those for much less."""
    found, asked = searched(lambda nbytes: 60_000 if nbytes > 99_000 else 0)
    assert asked[:2] == [NEAR, rung_of(BUDGET - 2 * (BUDGET // (2 * SETTINGS.first_request_divisor)), BUDGET)]
    assert found.asked > 98_000


def test_the_quickest_of_the_programs_that_fit_is_taken():
    for seed in range(50):
        wasted: dict[int, int] = {}
        found, asked = searched(partial(_remembered, wasted, random.Random(seed)))
        fitting = [nbytes for nbytes in asked if nbytes + wasted[nbytes] <= BUDGET]
        assert found.asked == max(fitting)  # here more bytes mean less time
        assert len(asked) <= 1 + SETTINGS.request_doublings + SETTINGS.request_halvings


def test_each_request_is_twice_as_far_below_the_budget_until_a_program_fits():
    found, asked = searched(lambda nbytes: max(1000, 101_000 - nbytes) if nbytes > 90_000 else 0)
    assert asked[:5] == [NEAR, *rungs(98_000, 96_000, 92_000, 84_000)]
    assert all(asked[4] < nbytes < asked[3] for nbytes in asked[5:])
    assert found.asked == max(nbytes for nbytes in asked if nbytes <= 90_000)


def test_a_strategy_without_a_smaller_plan_gets_one_request():
    found, asked = searched(lambda nbytes: 1000, least=BUDGET)
    assert found is None and len(asked) == 1


def test_plans_that_were_tried_are_skipped_and_bytes_run_out():
    asked = []

    def search(first):
        asked.clear()
        return fastest_under_budget(first.asked, first, lambda nbytes: asked.append(nbytes) or first)

    assert search(PlacedPlan(BUDGET, 1_000)) is None
    assert asked == [NEAR, *rungs(98_000, 96_000, 92_000, 84_000, 68_000, 36_000)]
    assert search(PlacedPlan(6, 1)) is None
    assert asked == [4, 2]


def test_between_the_plan_of_the_fewest_bytes_and_the_budget_lie_quicker_ones():
    """Requests that the strategy cannot meet get the plan of its fewest bytes, which fits."""
    placed = {}

    def ask(nbytes):
        live_bytes = max(nbytes, 99_000)
        wasted = 9_000 if live_bytes > 99_700 else 0
        return placed.setdefault(live_bytes, PlacedPlan(live_bytes, wasted))

    found = fastest_under_budget(BUDGET, ask(BUDGET), ask)
    assert 99_000 < found.asked <= 99_700


def test_a_program_as_quick_as_the_one_that_was_over_ends_the_search():
    found, asked = searched(lambda nbytes: 1, unhindered=1000.0)
    assert found.asked == BUDGET - 2 and len(asked) == 1


class FragmentingCompiler(Compiler):
    """Placement that leaves holes: the bytes depend on the plan, as they do when it really falls short."""

    def build(self, plan, target_bytes=0):
        program = super().build(plan, target_bytes)
        holes = 256 * (1 + (len(plan.order) + 3 * len(plan.decisions)) % 7)
        return replace(program, arena_bytes=program.arena_bytes + holes)


@pytest.mark.samples(4)
@pytest.mark.parametrize("net", ["chain", "residual", "inception"])
def test_under_holes_the_quickest_program_that_fits_is_found_and_auto_stays_ahead(net, tmp_path):
    graphs, costs = solver_job(net, tmp_path)
    compilers = {name: FragmentingCompiler(ArenaPlanner(graphs, costs), name) for name in STRATEGIES}
    least, most = (compilers[name].search.min_memory_program.arena_bytes for name in ("auto", "intra"))
    for step in range(4):
        budget, seconds = least + (most - least) * step // 4, {}
        for name, compiler in compilers.items():
            try:
                program = compiler.compile(budget)
            except BudgetError:
                continue
            assert program.arena_bytes <= budget
            seconds[name] = program.seconds
        assert seconds["auto"] <= min(seconds.values()) * SETTINGS.negligible_ratio, (step, seconds)


class RandomHoles(Compiler):
    """Placement that leaves holes of 1 to `most` units; `wasted` remembers those of each plan."""

    def __init__(self, *job, rng, most):
        super().__init__(*job)
        self.rng, self.most, self.wasted = rng, most, {}

    def build(self, plan, target_bytes=0):
        program = super().build(plan, target_bytes)
        key = str((plan.order, sorted(map(str, plan.decisions.items()))))
        holes = ALIGN * self.wasted.setdefault(key, self.rng.randint(1, self.most))
        return replace(program, arena_bytes=program.arena_bytes + holes)


@pytest.mark.exhaustive(8)
@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("net", ["chain", "inception"])
def test_under_holes_too_no_program_fits_a_unit_below_the_minimum(net, name, tmp_path):
    """The minimum is searched with the requests that the budgets below it make."""
    graphs, costs = solver_job(net, tmp_path)
    for seed in (6, 10, 15):
        compiler = RandomHoles(ArenaPlanner(graphs, costs), name, rng=random.Random(seed), most=40)
        least = compiler.search.min_memory_program.arena_bytes
        for budget in (least - 1, least - ALIGN):
            with pytest.raises(BudgetError) as refused:
                compiler.compile(budget)
            assert refused.value.minimum_bytes == least and refused.value.budget_bytes == budget
        assert compiler.compile(least).arena_bytes <= least


@pytest.mark.parametrize("most_units", [1024, 1023, 1022, 1016, 1015, 700, 513, 512, 9, 8, 0])
def test_where_placement_misses_copies_hold_as_much_as_can_be_placed(most_units):
    """Of 1024 units, of which copies may hold all; found within a 128th, and no plan for fewer bytes is requested.  All
    but that is tried first, and where it can be placed nothing else is."""
    budget = 1024 * ALIGN
    placed = []

    def build(plan, target_bytes=0):
        placed.append(plan.copy_limit_bytes)
        held = plan.copy_limit_bytes
        arena_bytes = budget + max(0, held - most_units * ALIGN)
        return SimpleNamespace(plan=plan, arena_bytes=arena_bytes, max_live_bytes=budget, host_bytes=0, seconds=-held)

    plan = Plan("held", (), copy_limit_bytes=budget)
    evaluator = SimpleNamespace(live_bytes=lambda plan: budget, estimate_seconds=lambda plan: 0)
    graph = SimpleNamespace(slices="", fingerprint="")
    search = BudgetSearch(as_entry(plan), graph, None, evaluator, Hints(), build)
    held = search.program(budget).plan.copy_limit_bytes
    assert held <= most_units * ALIGN < held + 8 * ALIGN + ALIGN
    assert len(placed) == (1 if most_units == 1024 else 3 if most_units >= 1016 else 3 + SETTINGS.copy_limit_halvings)


def test_a_plan_made_for_the_limit_that_could_be_placed_is_taken_where_it_is_quicker():
    """With copies that hold all 1024 units: 1 second.  512 can be placed: 3 seconds, or 2 with one for those."""
    budget, requests = 1024 * ALIGN, []

    def make(graph, costs, budget_bytes, evaluator, hints):
        requests.append(hints.copy_limit_bytes)
        limit_bytes = hints.copy_limit_bytes or budget_bytes
        return Plan("held", ("first" if hints.copy_limit_bytes is None else "second",), copy_limit_bytes=limit_bytes)

    def build(plan, target_bytes=0):
        arena_bytes = budget + max(0, plan.copy_limit_bytes - 512 * ALIGN)
        seconds = 2.0 if plan.order == ("second",) else 3.0
        return SimpleNamespace(plan=plan, arena_bytes=arena_bytes, max_live_bytes=budget, host_bytes=0, seconds=seconds)

    evaluator = SimpleNamespace(live_bytes=lambda plan: budget, estimate_seconds=lambda plan: 1.0)
    entry = SimpleNamespace(name="held", combines_others=False, make=make)
    search = BudgetSearch(entry, SimpleNamespace(slices="", fingerprint=""), None, evaluator, Hints(), build)
    program = search.program(budget)
    assert (program.plan.order, program.seconds) == (("second",), 2.0)
    assert requests == [None, program.plan.copy_limit_bytes]


class StepwiseSearch(BudgetSearch):
    """Over a strategy that answers a request with exactly its bytes, down to `least` units; with `most` to others."""

    def __init__(self, least, most, refused=()):
        self.entry = SimpleNamespace(name="stepwise", combines_others=False)
        self.hints = SimpleNamespace(host_budget_bytes=None)
        self.least, self.most, self.refused, self.requests = least, most, refused, []

    def _fit(self, budget_bytes, *, fastest=True):
        self.requests.append(budget_bytes)
        answered = budget_bytes >= self.least * ALIGN and budget_bytes // ALIGN not in self.refused
        return SimpleNamespace(arena_bytes=min(budget_bytes, self.most * ALIGN) if answered else self.most * ALIGN)

    _fastest_fitting = _fit


@pytest.mark.parametrize("refused", [(), (99, 98), (37, 60, 61, 62, 63)])
def test_a_minimum_far_below_the_first_is_found_in_few_requests_and_a_unit_less_is_refused(refused):
    for least in (1, 2, 10, 57, 99):
        search = StepwiseSearch(least, 100, refused)
        found = search.min_memory_program.arena_bytes
        assert len(search.requests) < 40 and search.requests[-1] == found - ALIGN
        assert found == least * ALIGN or found // ALIGN - 1 in refused
        with pytest.raises(BudgetError) as error:
            search.program(found - 1)
        assert error.value.minimum_bytes == found
    assert StepwiseSearch(100, 5_000_000).min_memory_program.arena_bytes == 100 * ALIGN


def test_without_a_search_for_the_minimum_a_refusal_looks_at_two_requests():
    search = StepwiseSearch(10, 100)
    with pytest.raises(BudgetError) as error:
        search.program(9 * ALIGN, search_minimum=False)
    assert search.requests == [9 * ALIGN, MINIMUM_MEMORY] and error.value.minimum_bytes == 100 * ALIGN


def test_the_program_for_a_smaller_budget_may_take_all_of_the_larger_one(monkeypatch):
    """Plans for eight smaller budgets take two units more once they are placed, or many; smaller ones are quicker."""
    monkeypatch.setattr(BudgetSearch, "_least_seconds", lambda *_: 0.0)
    budget, placed = 100 * ALIGN, []
    search = object.__new__(BudgetSearch)
    search.graph, search.costs = SimpleNamespace(ops=[0] * 10), None
    search.hints = SimpleNamespace(host_budget_bytes=None)
    search.entry, search.plan_of = None, lambda _, rung: SimpleNamespace(copy_limit_bytes=None, rung=rung)
    search.evaluator = SimpleNamespace(live_bytes=lambda plan: plan.rung)

    def build(plan, target_bytes):
        placed.append((plan.rung, target_bytes))
        wasted = 2 * ALIGN if plan.rung > 96 * ALIGN else 50 * ALIGN
        return SimpleNamespace(plan=plan, arena_bytes=plan.rung + wasted, seconds=1 + plan.rung / budget)

    search.build = build
    found = search._fastest_of_rungs(budget, SimpleNamespace(seconds=3.0))
    assert found.arena_bytes <= budget and found.plan.rung > 96 * ALIGN
    assert len(placed) == 8 and {target for _, target in placed} == {budget}


def test_a_plan_that_another_process_has_made_is_not_made_again():
    made = []
    entry = StrategyEntry("stepwise", "", lambda *_: made.append(1) or Plan("stepwise", ("a",)))
    search = BudgetSearch(entry, SimpleNamespace(slices="", fingerprint=""), None, None, Hints(), None)
    theirs = Plan("stepwise", ("a", "b"))
    search.know(10 * ALIGN + 1, theirs)
    assert search.own_plan(10 * ALIGN + 2) is theirs and not made
    assert search.own_plan(11 * ALIGN).order == ("a",) and made == [1]
