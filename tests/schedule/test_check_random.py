"""The checker compared with a brute-force oracle: plans are safe, and random defects are detected.

The oracle (interpreter.py) runs a schedule on symbols in every order of instructions that can matter; the checker
verifies in one pass.
"""

import random
from dataclasses import replace

import pytest

from layermem.schedule.check import violations
from layermem.schedule.layout import Layout
from layermem.schedule.lower import lower
from layermem.schedule.place import place
from tests.schedule.interpreter import wrong_runs
from tests.schedule.random_graphs import random_costs, random_graph, random_plan


def schedule_of(seed, *, most=8):
    rng = random.Random(seed)
    graph = random_graph(rng, rng.randint(1, most))
    layout = Layout(graph, random_costs(rng, graph))
    plan = random_plan(rng, graph)
    return place(lower(layout, plan), step_seconds=0.0), rng


@pytest.mark.samples(4)
@pytest.mark.parametrize("block", range(5))
def test_any_placed_plan_is_safe_in_every_order_that_its_edges_permit(block):
    copies = is_recompute = overlays = 0
    for seed in range(block * 40, block * 40 + 40):
        schedule, _ = schedule_of(seed)
        assert violations(schedule) == [], seed
        assert wrong_runs(schedule) == [], seed
        copies += sum(instruction.op is None for instruction in schedule.instructions)
        is_recompute += sum(instruction.is_recompute for instruction in schedule.instructions)
        overlays += sum(r.over is not None for r in schedule.residencies)
    assert copies > 100 and is_recompute > 30 and overlays > 20  # the plans are not trivial


# -- mutants ---------------------------------------------------------------------------------------------------


def _edit_row(schedule, rng, change):
    instructions = list(schedule.instructions)
    tick = rng.randrange(len(instructions))
    instructions[tick] = change(instructions[tick])
    return replace(schedule, instructions=tuple(instructions))


def drop_an_edge(schedule, rng):
    waiting = [instruction.tick for instruction in schedule.instructions if instruction.after]
    if not waiting:
        return schedule
    instructions, tick = list(schedule.instructions), rng.choice(waiting)
    gone = rng.choice(instructions[tick].after)
    instructions[tick] = instructions[tick]._replace(after=tuple(t for t in instructions[tick].after if t != gone))
    return replace(schedule, instructions=tuple(instructions))


def shift_a_residency(schedule, rng):
    residencies = list(schedule.residencies)
    i = rng.randrange(len(residencies))
    offset = max(0, residencies[i].offset + 256 * rng.choice((-4, -2, -1, 1, 2, 4)))
    residencies[i] = residencies[i]._replace(offset=offset)
    return replace(schedule, residencies=tuple(residencies), peak_bytes=schedule.peak_bytes + 1024)


def swap_two_instructions(schedule, rng):
    order = list(range(len(schedule.instructions)))
    i = rng.randrange(len(order) - 1)
    order[i], order[i + 1] = order[i + 1], order[i]
    return _reordered(schedule, order)


def drop_an_instruction(schedule, rng):
    gone = rng.randrange(len(schedule.instructions))
    return _reordered(schedule, [tick for tick in range(len(schedule.instructions)) if tick != gone])


def _reordered(schedule, order):
    """The instructions of these ticks, numbered anew; residencies of the whole step remain so."""
    now = {old: new for new, old in enumerate(order)}
    instructions = tuple(
        schedule.instructions[old]._replace(
            tick=new, after=tuple(sorted(now[t] for t in schedule.instructions[old].after if t in now))
        )
        for old, new in now.items()
    )
    before = len(schedule.instructions)
    residencies = tuple(r._replace(end=len(instructions)) if r.end == before else r for r in schedule.residencies)
    return replace(schedule, instructions=instructions, residencies=residencies)


def read_another_residency(schedule, rng):
    """A role, and what the instruction lists, moves to another residency of the same buffer, or of any."""
    instruction = rng.choice([instruction for instruction in schedule.instructions if instruction.reads])
    was = rng.choice(instruction.reads)
    buffer, host = schedule.residencies[was].buffer, schedule.residencies[was].host
    others = [r.id for r in schedule.residencies if r.id != was and (r.buffer == buffer) == (rng.random() < 0.8)]
    others = [i for i in others if schedule.residencies[i].host == host]
    if not others:
        return schedule
    to = rng.choice(others)

    def moved(ids):
        return tuple(to if i == was else i for i in ids)

    changed = instruction._replace(
        reads=moved(instruction.reads),
        writes=moved(instruction.writes),
        roles={role: to if i == was else i for role, i in instruction.roles.items()},
    )
    instructions = list(schedule.instructions)
    instructions[instruction.tick] = changed
    return replace(schedule, instructions=tuple(instructions))


def exchange_op_and_recomputation(schedule, rng):
    def change(instruction):
        original = schedule.graph.by_name.get(instruction.what)
        if original is None or original.recompute is None:
            return instruction
        op = original if instruction.is_recompute else original.recompute
        roles = {role: rid for role, rid in instruction.roles.items() if role in op.roles or role == "workspace"}
        if roles.keys() - {"workspace"} != op.roles.keys():
            return instruction
        at = {op.roles[role]: rid for role, rid in roles.items() if role in op.roles}
        workspace = (roles["workspace"],) if op.workspace_bytes else ()
        return instruction._replace(
            op=op,
            is_recompute=not instruction.is_recompute,
            roles=roles,
            reads=tuple(at[b] for b in (*op.reads, *op.updates)),
            writes=(*(at[b] for b in (*op.updates, *op.writes)), *workspace),
        )

    return _edit_row(schedule, rng, change)


def overlay_at_will(schedule, rng):
    """An output of an op takes the place of something that the op reads."""
    instructions = [
        instruction
        for instruction in schedule.instructions
        if instruction.op is not None and instruction.reads and instruction.op.writes
    ]
    instruction = rng.choice(instructions)
    out = rng.choice(instruction.writes)
    over = rng.choice(instruction.reads)
    residencies = list(schedule.residencies)
    if over >= out:
        return schedule
    residencies[out] = residencies[out]._replace(offset=residencies[over].offset, over=over)
    return replace(schedule, residencies=tuple(residencies), peak_bytes=schedule.peak_bytes + 4096)


MUTATIONS = [
    drop_an_edge,
    shift_a_residency,
    swap_two_instructions,
    drop_an_instruction,
    read_another_residency,
    exchange_op_and_recomputation,
    overlay_at_will,
]
FEWEST = {"exchange_op_and_recomputation": 1}  # least number of mutants whose meaning must have changed


@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("half", range(2))
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.__name__)
def test_a_mutant_that_means_something_else_is_caught(mutation, half):
    wrong = caught = unchanged = 0
    for seed in range(half * 30, half * 30 + 30):
        schedule, rng = schedule_of(seed)
        for _ in range(3):
            mutant = mutation(schedule, rng)
            if mutant == schedule:
                unchanged += 1
                continue
            found = violations(mutant)
            caught += bool(found)
            assert found or mutation is not drop_an_edge, (seed, "an edge that no instruction needs")
            wrong_by_oracle = wrong_runs(mutant)
            wrong += bool(wrong_by_oracle)
            assert found or not wrong_by_oracle, (seed, wrong_by_oracle)
    assert wrong >= FEWEST.get(mutation.__name__, 7), (wrong, caught, unchanged)
