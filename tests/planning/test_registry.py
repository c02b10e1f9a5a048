"""The registry: a decorated function is in every list that its entry declares it for."""

import pytest

from layermem.errors import InputError
from layermem.planning import registry
from layermem.planning.plan import Plan
from layermem.planning.registry import (
    SAVED_PLAN,
    StrategyEntry,
    as_entry,
    candidates_of_auto,
    default_strategy,
    get_strategy,
    single_strategies,
    strategy,
    suggested_strategies,
)


@pytest.fixture
def empty(monkeypatch):
    monkeypatch.setattr(registry, "STRATEGIES", {})
    return registry.STRATEGIES


def register(name, **declared):
    @strategy(name, description=f"the strategy {name}", **declared)
    def make(graph, costs, budget_bytes, evaluator, hints):
        return Plan(name, ())

    return make


def names(entries):
    return [entry.name for entry in entries]


def test_tables_have_strategies_by_their_order_and_then_by_name(empty):
    for name, order in (("late", 30), ("b", 20), ("a", 20), ("early", 10)):
        register(name, order=order)
    assert list(empty) == ["early", "a", "b", "late"]
    register("new")
    assert list(empty)[-1] == "new"


def test_an_entry_is_found_by_its_name_and_makes_the_plans_of_its_function(empty):
    make = register("mine", order=65)
    assert get_strategy("mine").make is make
    with pytest.raises(InputError, match="unknown strategy 'other' \\(choose from mine\\)"):
        get_strategy("other")


def test_each_list_has_those_that_declare_themselves_for_it_by_priority(empty):
    register("plain", priority=20)
    register("copies", priority=30, offloads=True)
    register("hidden", priority=10, suggest_when_over_budget=False)
    register("shown", priority=15, candidate_of_auto=False)
    register("neither", suggest_when_over_budget=False, candidate_of_auto=False)
    register("mixture", priority=1, combines_others=True)
    assert names(suggested_strategies()) == ["shown", "plain", "copies", "mixture"]  # one that combines others is last
    assert names(candidates_of_auto()) == ["copies", "hidden", "plain"]  # those that offload are first
    assert names(single_strategies()) == ["hidden", "shown", "plain", "copies"]


@pytest.mark.parametrize("choice", [3, ["auto"]])
def test_a_choice_of_another_type_is_refused(choice):
    with pytest.raises(InputError, match="is no strategy; give a name "):
        as_entry(choice)


def test_a_choice_may_be_a_name_an_entry_a_saved_plan_or_a_function(empty):
    make = register("mine")
    entry = get_strategy("mine")
    assert as_entry("mine") is as_entry(entry) is entry
    plan = Plan("anything", ("a",))
    assert as_entry(plan).name == SAVED_PLAN and as_entry(plan).make(None, None, 0, None, None) is plan
    assert (as_entry(make).name, as_entry(make).make) == ("make", make)
    assert isinstance(as_entry(make), StrategyEntry)


def test_without_a_budget_the_default_gives_nothing_up():
    assert (default_strategy(None), default_strategy(10**9)) == ("liveness", "auto")


def test_every_strategy_of_the_folder_is_registered_under_its_own_name():
    for name, entry in registry.STRATEGIES.items():
        assert entry.name == name and entry.description and entry.order < 1000
