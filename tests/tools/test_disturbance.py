"""Which runs of a benchmark count: those that no other process disturbed."""

import time

from tools.cpu.disturbance import MOST_TURNS, Others, busy_seconds, run_in_turns


def shares_of(*cores):
    """A disturbance that is `cores` in the turns, one for each run."""
    left = iter(cores)
    calls = iter(range(10**6))
    return lambda: next(left) if next(calls) % 2 else 1.0  # what others took before a run does not count


def test_runs_alternate_until_enough_of_each_were_undisturbed():
    order = []

    def run(name):
        return lambda turn: order.append(f"{name}{turn}") or float(turn)

    found = run_in_turns([run("a"), run("b")], 2, shares_of(0.0, 0.5, 0.1, 0.0, 0.6, 0.0))
    assert order == ["a0", "b0", "a1", "b1", "a2", "b2"]
    assert found == [[0.0, 1.0], [1.0, 2.0]]


def test_where_every_run_was_disturbed_all_of_them_count():
    found = run_in_turns([float], 2, lambda: 1.0)
    assert found == [[float(turn) for turn in range(2 * MOST_TURNS)]]


def test_a_busy_loop_of_this_process_is_not_the_work_of_others(monkeypatch):
    monkeypatch.setattr("tools.cpu.disturbance.busy_seconds", lambda: 100.0 + sum(time.process_time() for _ in "a"))
    others = Others()
    end = time.process_time() + 0.02
    while time.process_time() < end:
        pass
    assert others.cores() < 1.0


def test_cpu_time_of_all_cores_never_falls():
    first = busy_seconds()
    assert 0.0 <= first <= busy_seconds()
