"""The checker beside a brute-force twin: what the planner makes is safe, and what is broken at random is caught.

The twin (interpreter.py) runs a schedule on symbols in every order of rows that can matter; the checker walks once.
"""

import random
from dataclasses import replace

import pytest

from layermem.schedule.check import violations
from layermem.schedule.layout import Layout
from layermem.schedule.lower import lower
from layermem.schedule.place import place
from tests.schedule.interpreter import wrong_runs
from tests.schedule.toys import toy_costs, toy_graph, toy_plan


def schedule_of(seed, *, most=8):
    rng = random.Random(seed)
    graph = toy_graph(rng, rng.randint(1, most))
    layout = Layout(graph, toy_costs(rng, graph))
    plan = toy_plan(rng, graph)
    return place(graph, plan, lower(layout, plan), seconds=0.0), rng


@pytest.mark.parametrize("block", range(5))
def test_any_plan_lowered_and_placed_is_safe_in_every_order_that_its_edges_permit(block):
    copies = again = overlays = 0
    for seed in range(block * 40, block * 40 + 40):
        schedule, _ = schedule_of(seed)
        assert violations(schedule) == [], seed
        assert wrong_runs(schedule) == [], seed
        copies += sum(row.op is None for row in schedule.rows)
        again += sum(row.again for row in schedule.rows)
        overlays += sum(r.over is not None for r in schedule.residencies)
    assert copies > 100 and again > 30 and overlays > 20  # the plans are not trivial


# -- mutants ---------------------------------------------------------------------------------------------------


def _edit_row(schedule, rng, change):
    rows = list(schedule.rows)
    tick = rng.randrange(len(rows))
    rows[tick] = change(rows[tick])
    return replace(schedule, rows=tuple(rows))


def drop_an_edge(schedule, rng):
    waiting = [row.tick for row in schedule.rows if row.after]
    if not waiting:
        return schedule
    rows, tick = list(schedule.rows), rng.choice(waiting)
    gone = rng.choice(rows[tick].after)
    rows[tick] = rows[tick]._replace(after=tuple(t for t in rows[tick].after if t != gone))
    return replace(schedule, rows=tuple(rows))


def shift_a_residency(schedule, rng):
    residencies = list(schedule.residencies)
    i = rng.randrange(len(residencies))
    offset = max(0, residencies[i].offset + 256 * rng.choice((-4, -2, -1, 1, 2, 4)))
    residencies[i] = residencies[i]._replace(offset=offset)
    return replace(schedule, residencies=tuple(residencies), peak=schedule.peak + 1024)


def swap_two_rows(schedule, rng):
    order = list(range(len(schedule.rows)))
    i = rng.randrange(len(order) - 1)
    order[i], order[i + 1] = order[i + 1], order[i]
    return _reordered(schedule, order)


def drop_a_row(schedule, rng):
    gone = rng.randrange(len(schedule.rows))
    return _reordered(schedule, [tick for tick in range(len(schedule.rows)) if tick != gone])


def _reordered(schedule, order):
    """The rows of these ticks, numbered anew; whole-run stays remain so."""
    now = {old: new for new, old in enumerate(order)}
    rows = tuple(
        schedule.rows[old]._replace(tick=new, after=tuple(sorted(now[t] for t in schedule.rows[old].after if t in now)))
        for old, new in now.items()
    )
    before = len(schedule.rows)
    residencies = tuple(r._replace(end=len(rows)) if r.end == before else r for r in schedule.residencies)
    return replace(schedule, rows=rows, residencies=residencies)


def read_another_stay(schedule, rng):
    """A role, and what the row lists, moves to another residency of the same buffer, or of any."""
    row = rng.choice([row for row in schedule.rows if row.reads])
    was = rng.choice(row.reads)
    buffer, host = schedule.residencies[was].buffer, schedule.residencies[was].host
    others = [r.id for r in schedule.residencies if r.id != was and (r.buffer == buffer) == (rng.random() < 0.8)]
    others = [i for i in others if schedule.residencies[i].host == host]
    if not others:
        return schedule
    to = rng.choice(others)

    def moved(ids):
        return tuple(to if i == was else i for i in ids)

    changed = row._replace(
        reads=moved(row.reads),
        writes=moved(row.writes),
        roles={role: to if i == was else i for role, i in row.roles.items()},
    )
    rows = list(schedule.rows)
    rows[row.tick] = changed
    return replace(schedule, rows=tuple(rows))


def exchange_op_and_replay(schedule, rng):
    def change(row):
        original = schedule.graph.by_name.get(row.what)
        if original is None or original.replay is None:
            return row
        op = original if row.again else original.replay
        roles = {role: rid for role, rid in row.roles.items() if role in op.roles or role == "workspace"}
        if roles.keys() - {"workspace"} != op.roles.keys():
            return row
        at = {op.roles[role]: rid for role, rid in roles.items() if role in op.roles}
        scratch = (roles["workspace"],) if op.workspace else ()
        return row._replace(
            op=op,
            again=not row.again,
            roles=roles,
            reads=tuple(at[b] for b in (*op.reads, *op.updates)),
            writes=(*(at[b] for b in (*op.updates, *op.writes)), *scratch),
        )

    return _edit_row(schedule, rng, change)


def overlay_at_will(schedule, rng):
    """An output of an op takes the place of something that the op reads."""
    rows = [row for row in schedule.rows if row.op is not None and row.reads and row.op.writes]
    row = rng.choice(rows)
    out = rng.choice(row.writes)
    over = rng.choice(row.reads)
    residencies = list(schedule.residencies)
    if over >= out:
        return schedule
    residencies[out] = residencies[out]._replace(offset=residencies[over].offset, over=over)
    return replace(schedule, residencies=tuple(residencies), peak=schedule.peak + 4096)


MUTATIONS = [
    drop_an_edge, shift_a_residency, swap_two_rows, drop_a_row, read_another_stay, exchange_op_and_replay,
    overlay_at_will,
]  # fmt: skip
FEWEST = {"exchange_op_and_replay": 2}  # of so many schedules, mutants whose meaning must have changed


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.__name__)
def test_a_mutant_that_means_something_else_is_caught(mutation):
    wrong = caught = unchanged = 0
    for seed in range(60):
        schedule, rng = schedule_of(seed)
        for _ in range(3):
            mutant = mutation(schedule, rng)
            if mutant == schedule:
                unchanged += 1
                continue
            found = violations(mutant)
            caught += bool(found)
            assert found or mutation is not drop_an_edge, (seed, "an edge that nobody needs")
            told = wrong_runs(mutant)
            wrong += bool(told)
            assert found or not told, (seed, told)
    assert wrong >= FEWEST.get(mutation.__name__, 15), (wrong, caught, unchanged)
