"""Workspaces of input layers where the batch of the next step may be copied early."""

from __future__ import annotations

from dataclasses import replace

import pytest

import layermem
from layermem.backends.base import get_device
from layermem.graph.ops import FORWARD
from layermem.ops import Feed
from layermem.schedule.ir import COMPUTE, Instruction, Residency
from layermem.schedule.upload_ahead import feed_workspaces, free_from, place_workspaces
from tests.schedule.small_graphs import op

UNIT = 256
TICKS = 10


def feed(tick: int, workspace: int, layer: str = "data") -> Instruction:
    made = replace(op(f"{layer}.forward", FORWARD), record=Feed(layer, 1))
    return Instruction(tick, COMPUTE, FORWARD, made.name, made, {"workspace": workspace}, (), (workspace,))


def residencies(*rows: tuple[int, int, int]) -> list[Residency]:
    """Residencies of one unit from (begin, end, offset in units); the first one is the workspace."""
    return [Residency(i, f"r{i}", begin, end, UNIT, UNIT * at) for i, (begin, end, at) in enumerate(rows)]


def offset_of(rows: list[Residency], floor: int = 0, peak: int = 3) -> int:
    return (
        place_workspaces([feed(0, 0), *[feed(0, 0)] * (TICKS - 1)], rows, UNIT * floor, UNIT * peak)[0].offset // UNIT
    )


def test_an_upload_lies_where_bytes_are_free_earliest():
    assert offset_of(residencies((0, 1, 0), (1, 9, 0), (2, 5, 1), (3, 7, 2))) == 1


def test_an_upload_stays_if_no_other_bytes_are_free_earlier():
    assert offset_of(residencies((0, 1, 1), (1, 9, 0), (2, 5, 1), (3, 7, 2))) == 1


def test_an_upload_overlaps_no_operand_of_its_op_and_no_earlier_buffer():
    assert offset_of(residencies((1, 2, 0), (3, 9, 0), (0, 1, 1), (3, 7, 2))) == 2
    assert offset_of(residencies((0, 1, 0), (1, 9, 0), (0, 4, 1), (3, 7, 2))) == 2


def test_an_upload_lies_above_persistent_buffers_and_below_the_peak():
    assert offset_of(residencies((0, 1, 2), (3, 7, 2)), floor=2) == 2
    assert offset_of(residencies((0, 1, 0), (1, 9, 0)), peak=1) == 0


def test_the_tick_is_the_end_of_the_last_residency_in_its_bytes():
    rows = residencies((0, 1, 0), (1, 4, 0), (2, 9, 1))
    assert free_from(rows[0], rows, TICKS) == 4
    rows = residencies((1, 2, 0), (0, 1, 0))
    assert free_from(rows[0], rows, TICKS) == TICKS  # at tick 0 of the next step something else is there
    rows = residencies((0, 1, 0), (2, 9, 1))
    assert free_from(rows[0], rows, TICKS) == 1


@pytest.mark.samples(3)
@pytest.mark.parametrize("strategy, share", [("liveness", 1.0), ("auto", 0.6), ("auto", 0.5)])
def test_a_net_copies_its_next_batch_before_a_step_ends(strategy, share):
    net = layermem.Net("prototxt/alexnet/train_val.prototxt", batch=64)
    full = layermem.plan(net, device=get_device("cuda"), strategy="liveness").peak_bytes
    program = layermem.plan(net, device=get_device("cuda"), strategy=strategy, budget=int(share * full)).program
    schedule = program.train
    (workspace,) = feed_workspaces(schedule.instructions).values()
    tick = free_from(schedule.residencies[workspace], schedule.residencies, len(schedule.instructions))
    assert program.arena_bytes <= share * full
    assert program.timeline.seconds - program.timeline.end[tick - 1] > schedule.residencies[workspace].nbytes / 45e9
