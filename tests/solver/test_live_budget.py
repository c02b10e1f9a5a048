"""Budgets that change while training runs: no change alters a bit, a refused one changes nothing, memory follows."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import weakref
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest

from layermem import caffe
from layermem.backends.base import Device
from layermem.distributed.loopback import run_ranks
from layermem.errors import BudgetError, DeviceError, InputError
from layermem.interactive.solver import Solver
from layermem.report.events import Budgeted
from layermem.solver import live_budget
from layermem.solver.live_budget import CALM_SECONDS, LESS, LOOK_SECONDS, MORE, PATIENCE, BudgetFile, LiveBudget
from layermem.utils.free_memory import FreeMemory
from tests.nets import DATA, LOSS, conv, norm, relu, solver_file

NET = f"""
    {DATA} {conv("conv1", "data", 8, 3)} {norm("conv1")} {relu("conv1")} {conv("conv2", "conv1", 8, 3)} {relu("conv2")}
    layer {{ name: "act" type: "TanH" bottom: "conv2" top: "act" }} {conv("conv3", "act", 4, 3)} {relu("conv3")}
    layer {{ name: "fc" type: "InnerProduct" bottom: "conv3" top: "fc"
            inner_product_param {{ num_output: 16 weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "drop" type: "Dropout" bottom: "fc" top: "fc" dropout_param {{ dropout_ratio: 0.4 }} }}
    {LOSS % "fc"}
"""
LAST = 8
FIELDS = {"max_iter": LAST, "snapshot": 3, "test_interval": 3, "display": 2, "random_seed": 5, "average_loss": 3}
FIELDS["snapshot_after_train"] = True
ADAM = {"type": "Adam", "momentum2": 0.99, "base_lr": 0.01, "iter_size": 2}
PLANS = {
    "plain": {},
    "slices": {"slices": "auto"},
    "rows": {"split_weights": "fc/2"},
    "host": {"host_budget": "1GiB"},
    "spill": {"spill": "."},
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def solver_of(**fields):
    return solver_file(NET, Path(), **{**FIELDS, **fields, "snapshot_prefix": "run"})


def trained(ranks=1, fields=None, before=lambda solver: None, snapshot=None, **options):
    """A hash of the last snapshot and of all that was displayed and tested; the events, and the solvers' answers to
    `before`, by rank."""
    for old in Path().glob(f"run_iter_{LAST}.*"):
        old.unlink()
    events: list[list[object]] = [[] for _ in range(ranks)]

    def run(transport):
        rank = 0 if transport is None else transport.rank
        own = {name: value[rank] if isinstance(value, list) else value for name, value in options.items()}
        with Solver(
            solver_of(**(fields or {})),
            transport=transport,
            snapshot=snapshot,
            log=events[rank].append,
            device=own.pop("device", "cpu"),
            **own,
        ) as solver:
            answer = before(solver)
            solver.solve(sigusr1="budget")
            assert solver.runner.measured_peak_bytes == solver.program.arena_bytes == solver.runner.arena.nbytes
            return answer

    answers = [run(None)] if ranks == 1 else run_ranks(ranks, run, seed=ranks)
    shown = [e for e in events[0] if type(e).__name__ in ("Tested", "Displayed", "FinalLoss")]
    seen = [(type(e).__name__, e.iteration, [str(o.values) for o in getattr(e, "outputs", ())]) for e in shown]
    files = [Path(f"run_iter_{LAST}.{end}").read_bytes() for end in ("caffemodel", "solverstate")]
    return sha256(b"".join(files)).hexdigest(), seen, [e for e in events[0] if isinstance(e, Budgeted)], answers


def bounds(ranks=1, fields=None, **options):
    """The least bytes of the step, and those of its plan without a budget."""
    if ranks > 1:
        return max(run_ranks(ranks, lambda transport: _bounds(fields, transport=transport, **options)))
    return _bounds(fields, **options)


def _bounds(fields, **options):
    with Solver(solver_of(**(fields or {})), **options) as solver:
        most = solver.program.arena_bytes
        with pytest.raises(BudgetError) as caught:
            solver.budget = 1
        return caught.value.minimum_bytes, most


def setting(least, most, seed=0):
    """Let a solver have another budget in each iteration; some cannot be kept."""

    def before(solver):
        rng = random.Random(seed)

        def change():
            solver.budget = rng.choice([least, most, rng.randint(least, most), rng.randint(least, most), "1KiB", None])

        solver.add_callback(on_iteration=change)

    return before


@pytest.mark.exhaustive(5)
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


def test_a_file_that_is_wrong_vanishes_or_cannot_be_read_is_one_sentence_each_time_it_changes(monkeypatch):
    least, most = bounds()
    expected, _, _, _ = trained()

    def vanish():
        Path("budget").unlink()

    def become_a_folder():
        Path("budget").mkdir()

    def become_a_file():
        Path("budget").rmdir()
        Path("budget").write_text(f"  {least}\n\n")

    steps = {
        1: lambda: Path("budget").write_text("banana"),
        2: vanish,
        3: become_a_folder,
        4: become_a_file,
        5: lambda: Path("budget").write_text(" \n"),
        6: lambda: Path("budget").write_bytes(b"\xff2"),
        7: lambda: Path("budget").write_text("2" * 5000),
    }

    def before(solver):
        solver.add_callback(on_iteration=lambda: steps.get(solver.iteration, lambda: None)())

    Path("budget").write_text(str(most))
    found, _, events, _ = trained(before=before, budget=least, budget_file="budget")
    assert found == expected
    said = {event.iteration: event.refusal for event in events}
    assert {1, 2, 3, 4, 5, 6, 7} == set(said) and said[4] is None
    for iteration, words in {
        1: "'banana' is not an amount of memory",
        2: "budget: no such file",
        3: "budget: is a folder",
        5: "budget: is empty; write a budget such as 2GiB to it",
        6: "is not UTF-8 text",
        7: "is larger than 4.00 KiB",
    }.items():
        assert words in said[iteration]
    assert [event.report.budget_bytes for event in events] == [most] * 3 + [least] * 4


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permission_is_read_once_it_has_it():
    path = Path("budget")
    path.write_text("1MiB")
    file = BudgetFile(path)
    assert file.read() == "1MiB"
    path.chmod(0)
    assert file.has_changed()
    with pytest.raises(InputError, match="Permission denied"):
        file.read()
    path.chmod(0o600)
    assert file.has_changed()


def test_only_another_text_is_a_change(monkeypatch):
    path = Path("budget")
    path.write_text("1GiB")
    file = BudgetFile(path)
    file.read()
    path.write_text("2GiB")  # as long, and perhaps within the resolution of time stamps
    assert file.has_changed() and not file.has_changed()
    path.touch()
    assert not file.has_changed()
    opened = []
    monkeypatch.setattr(live_budget, "SETTLED_NS", 0)
    file.read()
    monkeypatch.setattr(live_budget, "read_lines", lambda *a, **o: opened.append(a) or ["3GiB"])
    assert not file.has_changed() and not opened  # its state alone is looked at
    path.write_text("3GiB")
    assert file.has_changed() and len(opened) == 1


def test_the_file_counts_from_when_it_exists():
    assert LiveBudget("1GiB", "budget").given == "1GiB"
    with pytest.raises(InputError, match="no such file"):
        LiveBudget(None, "budget")
    Path("budget").write_text("2GiB\n")
    assert LiveBudget("1GiB", "budget").given == LiveBudget(None, "budget").given == "2GiB"
    Path("budget").write_text("")
    with pytest.raises(InputError, match="is empty"):
        LiveBudget("1GiB", "budget")


class Memory:
    """Free memory, pressure and time as a test states them, for a budget of 1000 bytes whose arena takes 900."""

    def __init__(self, monkeypatch, **options):
        self.available, self.pressure, self.now = 1000, 0.0, 100.0
        monkeypatch.setattr(live_budget, "memory_pressure", lambda: self.pressure)
        monkeypatch.setattr(live_budget, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.budget = LiveBudget("free", follows=True, **options)

    def look(self, available=1000, pressure=0.0, after=LOOK_SECONDS):
        """The bytes of the next plan; None if no other plan is due."""
        self.available, self.pressure, self.now = available, pressure, self.now + after
        if not self.budget.is_due(self.resolve, 1000, 900):
            return None
        return self.budget.next_bytes(self.resolve)

    def resolve(self, budget):
        assert budget == "free"
        return self.available


def test_a_budget_of_free_memory_follows_it_where_the_difference_is_large(monkeypatch):
    memory = Memory(monkeypatch)
    assert [memory.look(available) for available in (1000, 900, 1001, MORE * 1000 - 1)] == [None] * 4
    assert memory.look(899) == 899 and memory.look(MORE * 1000) == MORE * 1000
    assert memory.look(950, pressure=9.9) is None and memory.look(2000, pressure=10.0) == int(LESS * 900)
    assert memory.look(500, pressure=10.0) == 500


def test_it_is_looked_at_once_a_second_and_after_a_change_planning_takes_a_twentieth_at_most(monkeypatch):
    memory = Memory(monkeypatch)
    assert memory.look() is None and memory.look(500, after=0.9) is None and memory.look(500, after=0.1) == 500
    for seconds in (0.1, 5.0):
        memory.budget.planned(seconds)
        wait = max(CALM_SECONDS, PATIENCE * seconds)
        assert memory.look(500, after=wait - 0.1) is None and memory.look(500, after=0.1) == 500


def test_what_was_refused_is_not_planned_again(monkeypatch):
    memory = Memory(monkeypatch)
    assert memory.look(500) == 500
    memory.budget.planned(0.0, least_bytes=700)
    assert memory.look(500, after=CALM_SECONDS) is None and memory.look(699) is None and memory.look(700) == 700


def test_other_budgets_do_not_follow(monkeypatch):
    memory = Memory(monkeypatch)
    for budget in (LiveBudget("free"), LiveBudget("1GiB", follows=True), LiveBudget(None, follows=True)):
        assert not budget.is_due(memory.resolve, 1000, 900)


def resident(name="VmRSS"):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name))


@pytest.mark.skipif(sys.platform != "linux", reason="/proc of Linux")
def test_resident_memory_follows_within_a_tenth_and_a_change_takes_no_more_than_the_larger_plan(folder):
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
