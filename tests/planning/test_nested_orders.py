"""The orders of walks and of the dynamic program over blocks, polished, on a chain of eight values."""

from collections.abc import Sequence
from math import inf

from layermem._native import EditableOrder, NestedPlanner
from layermem.planning.nested_orders import OrderSearch
from tests.native.test_planning_nested import Values

COUNT = 8
CHAIN = Values([1] * COUNT, [1] * COUNT, [(v, v + 1) for v in range(COUNT - 1)])


def search() -> OrderSearch:
    planner = NestedPlanner(CHAIN.layout, CHAIN.order, list(range(COUNT)), [], COUNT, 0)
    return OrderSearch(planner, CHAIN.layout, list(range(COUNT)), [], 0, polish_steps=400)


def seconds(order: Sequence[int]) -> float:
    return EditableOrder(CHAIN.layout, order, 0).recompute_seconds


def test_the_best_order_fits_and_recomputes_no_more_than_walks_blocks_and_starts():
    for budget in range(4, 12):
        order = search().best(budget, [])
        assert order is not None and CHAIN.live_bytes(order) <= budget
        planner = search().planner
        others = [planner.plan(budget, []), planner.plan_blocks(budget, inf)]
        assert seconds(order) <= min(plan.recompute_seconds for plan in others if plan is not None)
        again = search().best(budget, [order])
        assert again is not None and seconds(again) <= seconds(order)


def test_walks_have_the_same_order_whether_blocks_are_searched_or_not():
    for budget in (5, 6, 8):
        apart, both = search(), search()
        blocks = both.of_blocks(budget, None)
        assert blocks is not None and CHAIN.live_bytes(blocks) <= budget
        assert apart.of_walks(budget, []) == both.of_walks(budget, [])


def test_a_known_answer_is_used_again_where_walks_and_starts_lead_to_the_same_order():
    known = search().of_walks(6, [])
    assert known is not None and search().of_walks(6, [known.start], known) is known


def test_an_order_of_blocks_that_recomputes_much_longer_than_another_one_is_left():
    assert search().of_blocks(4, CHAIN.order) is None  # which recomputes nothing, in more bytes


def test_the_same_question_has_the_same_answer_and_below_the_least_there_is_none():
    assert search().best(5, []) == search().best(5, [])
    assert search().best(1, []) is None
