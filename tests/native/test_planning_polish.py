"""Orders under edits: their bytes equal those of a whole layout, and annealing never makes an order worse."""

import random

import pytest

from layermem._native import EditableOrder, LayoutGraph, polish_order
from tests.native.test_planning_nested import random_values

PERSISTENT = 3


def random_layout(seed):
    """A layout graph with workspaces, overlays, accumulation and persistent buffers, and an order that runs."""
    draw = random.Random(seed)
    graph, order, written = LayoutGraph(), [], []
    for i in range(PERSISTENT):
        graph.add_buffer(f"p{i}", draw.randint(1, 9), True, 0.0, 0.0)
    for i in range(draw.randint(4, 12)):
        new = [
            graph.add_buffer(f"x{i}.{k}", draw.randint(1, 9), False, 0.0, 0.0) for k in range(draw.choice((1, 1, 2)))
        ]
        reads = draw.sample(written, min(len(written), draw.randint(0, 3)))
        over = [(new[0], b, 1) for b in reads if draw.random() < 0.5]
        reads = [*reads, draw.randrange(PERSISTENT)]
        again = graph.add_op(f"f{i}", reads, [], new, over, draw.choice((0, 4)), float(draw.randint(1, 9)))
        once = [(new[0], b, 1) for _, b, _ in over if draw.random() < 0.7]
        order.append(graph.add_op(f"f{i}", reads, [], new, once, draw.choice((0, 4)), 1.0, again))
        written += new
    total = graph.add_buffer("total", 5, False, 0.0, 0.0)
    order.append(graph.add_op("zero", [], [], [total], [], 0, 0.0))
    for i in range(len(written)):
        reads = draw.sample(written, min(len(written), 2))
        order.append(
            graph.add_op(f"b{i}", reads, [total, draw.randrange(PERSISTENT)], [], [], draw.choice((0, 3)), 0.0)
        )
    return graph, order


@pytest.mark.parametrize("seed", range(20))
def test_every_edit_has_the_bytes_of_a_whole_layout_and_is_undone_to_the_byte(seed):
    graph, order = random_layout(seed)
    draw = random.Random(seed)
    edited = EditableOrder(graph, order, 1)
    for _ in range(30):
        before = edited.peak_bytes, edited.order
        edited.begin_edit()
        for _ in range(draw.randint(1, 3)):
            position = draw.randrange(1, len(edited.order))
            try:
                if draw.random() < 0.6:
                    edited.insert(position, draw.choice(edited.order[:position]))
                else:
                    edited.remove(position)
            except ValueError:
                continue
            assert edited.peak_bytes == graph.measure(edited.order, [], 1, 1.0)[0]
        if draw.random() < 0.4:
            edited.undo_edit()
            assert (edited.peak_bytes, edited.order) == before
    assert len(edited.order) > len(order)


def test_what_cannot_run_again_or_is_not_there_is_refused():
    graph, order = random_layout(0)
    edited = EditableOrder(graph, order, 1)
    for position, op in ((0, order[1]), (len(order) - 1, order[-2]), (len(order), order[0]), (-1, order[0])):
        with pytest.raises(ValueError, match=r"recomputation|position"):
            edited.insert(position, op)
    with pytest.raises(ValueError, match="only a recomputation can be removed"):
        edited.remove(0)


def test_annealing_of_a_plan_for_fewer_bytes_never_passes_the_optimum_and_mostly_reaches_it():
    equal = 0
    for seed in range(41, 56):
        values = random_values(seed)
        start = values.planner.minimum()
        budget = (start.live_bytes + 3 * values.live_bytes(values.order)) // 4
        evictable = list(range(values.free.count))
        order = polish_order(values.layout, start.order, evictable, [], 0, budget, 4000)
        assert order == polish_order(values.layout, start.order, evictable, [], 0, budget, 4000)
        assert values.live_bytes(order) <= budget
        seconds, optimum = EditableOrder(values.layout, order, 0).recompute_seconds, values.free.least_time(budget)
        assert optimum <= seconds <= start.recompute_seconds, seed
        equal += seconds == optimum
    assert equal >= 10


def test_recomputations_that_write_what_is_dropped_stay():
    values = random_values(45)
    order = [*values.order[: values.free.count], values.order[0], *values.order[values.free.count :]]
    polished = polish_order(values.layout, order, list(range(values.free.count)), [0], 0, 10**6, 2000)
    assert polished.count(values.order[0]) == 2
    polished = polish_order(values.layout, order, list(range(values.free.count)), [], 0, 10**6, 2000)
    assert polished == values.order
