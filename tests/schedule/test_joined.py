"""Instructions that are launched together."""

from __future__ import annotations

from layermem.graph.ops import BACKWARD, UPDATE
from layermem.ops import MAX_JOINED
from layermem.schedule.ir import COMM, COMPUTE, H2D, PREFETCH, Instruction
from layermem.schedule.joined import joined
from tests.schedule.small_graphs import op


def row(tick: int, joins: str = "SGD", stream: str = COMPUTE) -> Instruction:
    kind = UPDATE if joins else BACKWARD
    return Instruction(tick, stream, kind, f"op{tick}", op(f"op{tick}", kind, joins=joins), {}, (), ())


def ticks(*rows: Instruction) -> list[list[int]]:
    return [[each.tick for each in group] for group in joined(rows)]


def test_ops_that_join_each_other_are_together_where_they_follow_each_other():
    assert ticks(row(0, ""), row(1), row(2), row(3, ""), row(4, ""), row(5)) == [[0], [1, 2], [3], [4], [5]]


def test_ops_of_other_words_and_streams_are_apart():
    assert ticks(row(0), row(1, "Adam"), row(2, "Adam"), row(3, "Adam", COMM)) == [[0], [1, 2], [3]]


def test_a_copy_between_them_keeps_them_apart():
    copy = Instruction(1, H2D, PREFETCH, "x", None, {}, (), ())
    assert ticks(row(0), copy, row(2), row(3)) == [[0], [1], [2, 3]]


def test_a_launch_joins_a_limited_number_of_updates():
    found = [len(group) for group in joined([row(tick) for tick in range(MAX_JOINED + 3)])]
    assert found == [MAX_JOINED, 3]
