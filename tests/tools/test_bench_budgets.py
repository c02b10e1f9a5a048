"""tools/bench_budgets.py: every plan is placed and checked, and one that is not sound is marked."""

import pytest

from layermem.planning.pipeline import Compiler
from layermem.schedule.check import UnsafeSchedule
from tools import bench_budgets
from tools.bench_budgets import FAILS, MIB, case, cells

ROW = ("mnist", 64, 45, (64, 2))


@pytest.fixture
def step():
    return case("mnist", 64, 45, "")


def test_a_plan_is_placed_within_its_budget(step):
    ms, overhead, peak, again, bound = cells(step, 64 * MIB)
    assert float(ms) > 0 and 0 < float(peak) <= 64 and again == "0" and overhead.endswith("%") and bound.endswith("%")


def test_a_row_has_both_halves(capsys, monkeypatch):
    monkeypatch.setattr(bench_budgets, "ROWS", [ROW])
    monkeypatch.setattr("sys.argv", ["bench_budgets.py"])
    assert bench_budgets.main() == 0
    head, _, fits, fails = capsys.readouterr().out.splitlines()
    assert head.count("|") == fits.count("|") == fails.count("|")
    assert fits.startswith("| mnist x64 | 45 | 64 | ") and " | - | - | - | - | " in fails


def test_a_schedule_that_is_not_safe_and_a_peak_above_the_budget_fail(step, monkeypatch, capsys):
    def unsafe(self, budget_bytes, **options):
        raise UnsafeSchedule("tick 3 reads what is not there")

    compile = Compiler.compile
    monkeypatch.setattr(Compiler, "compile", unsafe)
    assert cells(step, 64 * MIB)[0] == FAILS and "tick 3" in capsys.readouterr().err
    monkeypatch.setattr(Compiler, "compile", lambda self, budget, **options: compile(self, None))
    peak = cells(step, 1 * MIB)[2]
    assert peak.startswith(f"{FAILS}: ") and float(peak.split()[1]) > 1
