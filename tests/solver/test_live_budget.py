"""Budgets that change while training runs: no change alters a bit, a refused one changes nothing, memory follows."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import weakref
from pathlib import Path

import pytest

from layermem import caffe
from layermem.backends.base import Device
from layermem.errors import BudgetError, DeviceError, InputError
from layermem.interactive.solver import Solver
from layermem.report.events import Budgeted
from layermem.solver import live_budget
from layermem.utils.free_memory import FreeMemory
from tests.nets import solver_file
from tests.solver.live_budgets import LAST, bounds, solver_of, trained

pytestmark = pytest.mark.usefixtures("folder")
ADAM = {"type": "Adam", "momentum2": 0.99, "base_lr": 0.01, "iter_size": 2}
PLANS = {
    "plain": {},
    "slices": {"slices": "auto"},
    "rows": {"split_weights": "fc/2"},
    "host": {"host_budget": "1GiB"},
    "spill": {"spill": "."},
}


def setting(least, most, seed=0):
    """Let a solver have another budget in each iteration; some cannot be kept."""

    def before(solver):
        rng = random.Random(seed)

        def change():
            solver.budget = rng.choice([least, most, rng.randint(least, most), rng.randint(least, most), "1KiB", None])

        solver.add_callback(on_iteration=change)

    return before


@pytest.mark.exhaustive(8)
@pytest.mark.parametrize("fields", [{}, ADAM], ids=["momentum", "adam"])
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_no_change_of_the_budget_alters_a_bit(device, plan, fields):
    options = {"device": device, "poison": True, **PLANS[plan]}
    expected, seen, _, _ = trained(fields=fields, device=device)
    least, most = bounds(fields=fields, **options)
    assert least < most
    changed = trained(fields=fields, before=setting(least, most), **options)
    assert changed[:2] == (expected, seen)
    assert len({event.report.peak_bytes for event in changed[2]}) > 1
    resumed = trained(fields=fields, before=setting(least, most, 1), snapshot="run_iter_6.solverstate", **options)
    assert resumed[0] == expected


def write_budget(solver, least, most):
    """State the least bytes, more, and a budget that cannot be kept, two iterations each: ranks change in every second
    one."""
    Path("new").write_text(f"{[least, most, 1, least][solver.iteration // 2 % 4]}\n")
    os.replace("new", "budget")


def by_file(least, most):
    def before(solver):
        if solver.group.is_first:
            solver.add_callback(on_iteration=lambda: write_budget(solver, least, most))

    return before


def by_signal(least, most):
    def before(solver):
        def change():
            write_budget(solver, least, most)
            if threading.current_thread() is threading.main_thread():
                signal.raise_signal(signal.SIGUSR1)
                signal.raise_signal(signal.SIGUSR1)
            else:
                solver.request("budget")  # as the handler does, which only the main thread has

        if solver.group.is_first:
            solver.add_callback(on_iteration=change)

    return before


def by_free_memory(monkeypatch, rng, least, most):
    """Free memory that changes in each iteration, and is looked at in each."""
    for name in ("LOOK_SECONDS", "CALM_SECONDS", "PATIENCE"):
        monkeypatch.setattr(live_budget, name, 0)
    free = {"bytes": most}
    held = {}

    def free_memory():
        runner = held.get(threading.get_ident())
        return FreeMemory(free["bytes"] - (runner().runner.held_bytes if runner is not None else 0), "of the test")

    monkeypatch.setattr("layermem.backends.base.free_memory", free_memory)
    monkeypatch.setattr("layermem.solver.process_memory.beside_arena_bytes", lambda nets, graphs: 0)

    def before(solver):
        held[threading.get_ident()] = weakref.ref(solver)

        def change():
            free["bytes"] = rng.choice([least, 2 * most, rng.randint(least, most), rng.randint(least, most)])

        if solver.group.is_first:
            solver.add_callback(on_iteration=change)

    return before


@pytest.mark.exhaustive(3)
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("way", ["file", "signal", "free"])
def test_every_way_to_another_budget_keeps_the_bits(way, ranks, monkeypatch):
    fields = {**ADAM, "iter_size": 4}
    expected, seen, _, _ = trained(fields=fields)
    least, most = bounds(ranks, fields)
    rng = random.Random(3)
    if way == "free":
        options = {"budget": "free", "follow_free": True}
        before = by_free_memory(monkeypatch, rng, least, most)
    else:
        Path("budget").write_text(str(most))
        options = {"budget_file": "budget"}
        before = (by_file if way == "file" else by_signal)(least, most)
    found, shown, events, _ = trained(ranks, fields, before, poison=True, **options)
    assert (found, shown) == (expected, seen)
    assert len({event.report.peak_bytes for event in events if event.refusal is None}) > 1


def test_all_ranks_change_in_the_same_iteration_or_none():
    fields = {**ADAM, "iter_size": 4}
    least, most = bounds(2, fields)

    def before(solver):
        """The peak of each iteration; rank 1 alone states other budgets, of which the last one cannot be kept."""
        peaks = []

        def look():
            peaks.append(solver.report.budget_bytes)
            if solver.group.rank == 1 and solver.iteration in (2, 6):
                solver.budget = least if solver.iteration == 2 else 1000

        solver.add_callback(on_iteration=look)
        return peaks

    found, _, events, (first, second) = trained(2, fields, before, budget=[most, most])
    assert first == [most] * LAST and second == [most] * 3 + [least] * (LAST - 3)
    assert [event.iteration for event in events] == [3, 7] and events[0].refusal is None
    assert f"budget 1000 B is below the minimum of 'auto', {least / 1024:.1f} KiB" in events[1].refusal
    assert found == trained(fields=fields)[0]


def test_a_budget_that_cannot_be_kept_is_one_sentence_with_the_least_bytes_and_changes_nothing():
    least, most = bounds()
    with Solver(solver_of(), budget=most) as solver:
        runner, report = solver.runner, solver.report
        for budget in (1000, f"{least - 1}"):
            with pytest.raises(
                BudgetError, match=rf"is below the minimum of 'auto', .*\({least:,} bytes\)\."
            ) as caught:
                solver.budget = budget
            assert "\n" not in caught.value.lines[0]
        for budget in ("banana", "50", -1, float("nan")):
            with pytest.raises(InputError):
                solver.budget = budget
        assert solver.runner is runner and solver.report is report and solver.budget == most
        solver.budget = least
        assert solver.budget == least == solver.program.arena_bytes == solver.net.report.budget_bytes
        solver.step(1)
        solver.budget = None
        assert solver.budget is None and solver.report.strategy == "liveness"


@pytest.mark.samples(2)
@pytest.mark.parametrize("both", [False, True], ids=["of the new plan", "of either"])
def test_memory_that_cannot_be_had_leaves_the_plan_as_it_was(both, monkeypatch):
    least, most = bounds()
    expected, _, _, _ = trained()
    failing = []

    def arena(self, nbytes, **options):
        if nbytes in failing:
            raise DeviceError("this machine cannot allocate")
        return allocate(self, nbytes, **options)

    def before(solver):
        def change():
            solver.budget = least

        solver.add_callback(on_iteration=change)
        failing.append(least)
        if both:
            failing.append(solver.program.arena_bytes)

    allocate = Device.arena
    monkeypatch.setattr(Device, "arena", arena)
    if both:  # another process has taken it
        with pytest.raises(DeviceError, match="this machine cannot allocate"):
            trained(before=before, budget=most)
        return
    found, _, events, _ = trained(before=before, budget=most)
    assert found == expected and {event.refusal for event in events} == {"this machine cannot allocate"}


def resident(name="VmRSS"):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name))


@pytest.mark.skipif(sys.platform != "linux", reason="/proc of Linux")
def test_resident_memory_follows_the_budget(folder):
    layers, size = 12, "shape { dim: 1 dim: 1 dim: 1024 dim: 2048 } shape { dim: 1 dim: 1 dim: 1024 dim: 2048 }"
    chain = "".join(
        f'layer {{ name: "t{i}" type: "TanH" bottom: "{"data" if not i else f"t{i - 1}"}" top: "t{i}" }}\n'
        + ('layer { name: "s" type: "Scale" bottom: "t0" top: "t0" }\n' if not i else "")
        for i in range(layers)
    )
    net = f"""layer {{ name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {{ {size} }} }} {chain}
        layer {{ name: "loss" type: "EuclideanLoss" bottom: "t{layers - 1}" bottom: "label" top: "loss" }}"""
    file = solver_file(net, folder, test_iter=None, test_interval=None)
    with Solver(file) as solver:
        solver.step(1)
        rest = resident() - solver.program.arena_bytes
        for budget in ("60%", "40%", "100%", "45%"):
            before = resident()
            Path("/proc/self/clear_refs").write_text("5")
            solver.budget = budget
            peak = resident("VmHWM")
            solver.step(1)
            now, expected = resident(), rest + solver.program.arena_bytes
            assert abs(now - expected) < 0.1 * expected
            assert peak < max(before, now) + (16 << 20)  # what planning takes
        assert solver.program.arena_bytes < 100 << 20


def test_a_callback_and_another_thread_change_it_before_the_next_iteration():
    least, most = bounds()
    seen = []

    def set_budget():
        solver.budget = least

    with Solver(solver_of(), budget=most) as solver:

        def look():
            seen.append(solver.budget)
            if solver.iteration == 2:
                thread = threading.Thread(target=set_budget)
                thread.start()
                thread.join()  # it does not wait for the end of the training
                assert solver.budget == most
            if solver.iteration == 4:
                solver.budget = 7  # refused, and training goes on

        solver.add_callback(on_iteration=look)
        solver.solve()
    assert seen == [most] * 2 + [least] * (LAST - 2)


def test_signals_before_and_between_iterations_and_in_a_test_are_obeyed():
    least, most = bounds()
    moments = ("Testing", "Tested", "Stepped", "Saved")
    for moment in moments:
        Path("budget").write_text(str(most))
        events = []

        def log(event, moment=moment, events=events):
            events.append(event)
            if type(event).__name__ == moment and not Path("done").exists():
                Path("done").touch()
                Path("budget").write_text(str(least))
                signal.raise_signal(signal.SIGUSR1)

        with Solver(solver_of(), budget_file="budget", log=log) as solver:
            solver.solve(sigusr1="budget")
            assert solver.budget == least and solver.iteration == LAST
        Path("done").unlink()
        assert sum(isinstance(event, Budgeted) for event in events) == 1


def test_a_request_without_another_budget_says_that_it_stays():
    _, most = bounds()
    with Solver(solver_of(), budget=most, log=lambda event: events.append(event)) as solver:
        events, runner = [], solver.runner
        solver.request("budget")
        solver.step(1)
        assert solver.runner is runner
        assert [event.text for event in events if isinstance(event, Budgeted)] == [
            f"there is still a budget of {most / 1024:.1f} KiB"
        ]


def test_a_saved_plan_keeps_its_size():
    least, most = bounds()
    with Solver(solver_of(), budget=most) as solver:
        plan, peak = solver.report.program.plan, solver.program.arena_bytes
    with Solver(solver_of(), plan=plan) as solver:
        solver.budget = 2 * most
        assert solver.budget == 2 * most and solver.program.arena_bytes == peak
        with pytest.raises(BudgetError, match="is below the minimum of the saved plan"):
            solver.budget = least


def test_solvers_with_pycaffes_names_have_it_too():
    solver = caffe.SGDSolver(solver_of())
    unbounded = solver.program.arena_bytes
    solver.step(2)
    weights = solver.net.params["conv1"][0].data.copy()
    solver.budget = unbounded - 1024
    assert solver.program.arena_bytes < unbounded
    assert (solver.net.params["conv1"][0].data == weights).all()
    solver.step(1)
    assert solver.net.blobs["conv1"].data.any() and solver.net.params["conv1"][0].diff.any()
    solver.net.forward()
    assert (solver.net.separate.params["conv1"][0].data == solver.net.params["conv1"][0].data).all()
    assert not (solver.net.params["conv1"][0].data == weights).all()
