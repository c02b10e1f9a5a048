"""Where a budget that changes comes from: a file, or free memory."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from layermem.errors import InputError
from layermem.solver import live_budget
from layermem.solver.live_budget import CALM_SECONDS, LESS, LOOK_SECONDS, MORE, PATIENCE, BudgetFile, LiveBudget
from tests.solver.live_budgets import bounds, trained

pytestmark = pytest.mark.usefixtures("folder")


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


def test_free_memory_is_read_once_a_second(monkeypatch):
    memory = Memory(monkeypatch)
    assert memory.look() is None and memory.look(500, after=0.9) is None and memory.look(500, after=0.1) == 500


def test_planning_takes_a_twentieth_of_the_time_at_most(monkeypatch):
    memory = Memory(monkeypatch)
    memory.look()
    assert memory.look(500) == 500
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
