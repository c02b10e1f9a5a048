"""Which partition needs the fewest bytes, on numbers by hand."""

from __future__ import annotations

import pytest

from layermem.planning.partition_choices import most_part_bytes, part_items, runs_in_parts, sums_once


@pytest.mark.parametrize(("largest", "most"), [(40, 5), (80, 10), (800, 10), (7, 0)])
def test_a_part_has_a_share_of_the_largest_op_up_to_the_bytes_of_the_device(largest, most):
    assert most_part_bytes(largest, 10, 8) == most


@pytest.mark.parametrize(("most", "items"), [(120, 12), (119, 6), (60, 6), (45, 4), (10, 1), (0, 1)])
def test_a_part_has_the_most_items_that_divide_the_batch_and_fit(most, items):
    assert part_items(12, 120, most) == items


def test_an_op_runs_in_parts_if_they_need_less():
    assert runs_in_parts(101, 100)
    assert not runs_in_parts(100, 100) and not runs_in_parts(99, 100)


def test_a_sum_runs_once_if_its_operands_need_no_more_than_its_carries():
    assert sums_once(100, [60, 40])
    assert not sums_once(101, [60, 40]) and not sums_once(1, [0])


def test_a_sum_that_cannot_be_carried_runs_once():
    assert sums_once(101, [60, None])
