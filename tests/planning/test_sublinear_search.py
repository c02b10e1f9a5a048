"""Where Chen et al.'s search cuts a chain, by hand."""

from math import sqrt

import pytest

from layermem.planning import sublinear_search
from layermem.planning.hints import Hints
from layermem.planning.sublinear_search import cut_places, cut_segments, sublinear_candidates
from layermem.schedule.arena_planner import ArenaPlanner
from tests.planning.chains import UNIT, a_second_each, chain


def cuts(threshold, hints=Hints()):
    net = chain(6)
    segments = cut_segments(net, threshold, cut_places(net, hints))
    return " | ".join(" ".join(each.name.split(".")[0] for each in ops) for ops in segments)


def test_a_segment_ends_after_the_op_with_which_it_holds_more_than_the_threshold():
    assert cuts(0) == "feed f1 | f2 | f3 | f4 | f5 | f6"  # the feed cannot run again, so no segment ends there
    assert cuts(UNIT) == "feed f1 | f2 f3 | f4 f5 | f6"
    assert cuts(2 * UNIT) == "feed f1 f2 | f3 f4 f5 | f6"
    assert cuts(7 * UNIT) == "feed f1 f2 f3 f4 f5 f6"


def test_with_segment_ends_a_segment_ends_there_alone():
    assert cuts(0, Hints(segment_ends=("f2", "f5"))) == "feed f1 f2 | f3 f4 f5 | f6"
    assert cuts(3 * UNIT, Hints(segment_ends=("f2", "f5"))) == "feed f1 f2 f3 f4 f5 | f6"


def test_the_search_meets_the_segments_of_about_sqrt_n_and_states_what_each_plan_costs():
    """Of a chain of 16, some plan cuts 4 or 5 segments; every plan has the bytes and seconds that it claims."""
    net = chain(16)
    costs = a_second_each(net)
    evaluator = ArenaPlanner([net], costs)
    candidates = sublinear_candidates(net, costs, evaluator, Hints())
    for each in candidates:
        repeats = len(each.plan.order) - len(set(each.plan.order))
        assert (each.live_bytes, each.recompute_seconds) == (evaluator.live_bytes(each.plan), repeats)
    assert {16 - each.recompute_seconds for each in candidates} & {4, 5, 6, 7}
    assert min(each.live_bytes for each in candidates) <= 10 * UNIT < evaluator.live_bytes(candidates[0].plan)


def test_thresholds_are_those_of_memonger(monkeypatch):
    """A chain of 16 in units: sqrt(kept x largest / 2) of the segments before, then six steps up from the least.

    0     feed f1 | f2 | ... | f16               15 kept, largest 2   sqrt(15)   3.87
    3.87  feed ... f3 | f4 ... f7 | ... | f16     4 kept, largest 4   sqrt(8)    2.83
    2.83  feed f1 f2 | f3 f4 f5 | ... | f15 f16   5 kept, largest 3   sqrt(7.5)
    """
    tried = []

    def cut(graph, threshold, places):
        tried.append(threshold / UNIT)
        return cut_segments(graph, threshold, places)

    monkeypatch.setattr(sublinear_search, "cut_segments", cut)
    net = chain(16)
    costs = a_second_each(net)
    sublinear_candidates(net, costs, ArenaPlanner([net], costs), Hints())
    most = sqrt(2 * 7.5)
    steps = [2 + (most - 2) * step / 6 for step in range(7)]
    assert tried == pytest.approx([0, sqrt(15), sqrt(8), *steps])


def test_the_search_is_made_once_for_all_budgets_and_again_for_other_hints():
    net = chain(6)
    costs = a_second_each(net)
    evaluator = ArenaPlanner([net], costs)
    first = sublinear_candidates(net, costs, evaluator, Hints())
    assert sublinear_candidates(net, costs, evaluator, Hints()) is first
    assert sublinear_candidates(net, costs, evaluator, Hints(keep=("f3",))) is not first
