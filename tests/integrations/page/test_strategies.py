"""Comparison of strategies, for nets of any size."""

import pytest

from layermem.errors import InputError
from layermem.integrations.page import strategies
from layermem.integrations.page.strategies import choose_points, choose_strategies, memory_curve, strategies_page
from layermem.report.plan_report import evaluate


def test_each_strategy_has_its_peak_its_least_bytes_and_a_curve_that_begins_there(report, strategies):
    for row in strategies["rows"]:
        alone = evaluate(report.job, row["strategy"], report.budget_bytes)
        assert (row["peak_bytes"], row["seconds"], row["fits"]) == (alone.peak_bytes, alone.seconds, alone.feasible)
        assert row["least_bytes"] == alone.minimum_bytes
        (curve,) = (each for each in strategies["curves"] if each["strategy"] == row["strategy"])
        assert curve["bytes"][0] <= row["least_bytes"]
        assert curve["bytes"] == sorted(curve["bytes"]) and curve["seconds"] == sorted(curve["seconds"], reverse=True)
    assert strategies["rows"][0]["fits"]
    assert any("recompute-exact" in note and "--strategies" in note for note in strategies["left_out"])


def test_each_time_of_the_table_is_that_of_a_plan_for_its_budget(report, strategies):
    table, names = strategies["least_time"], {each["strategy"] for each in strategies["curves"]}
    assert report.budget_bytes in {row["bytes"] for row in table} and len(table) > 2
    for row in table:
        plans = {name: evaluate(report.job, name, row["bytes"]) for name in names}
        fits = {name: plan.seconds for name, plan in plans.items() if plan.feasible}
        assert row["seconds"] == pytest.approx(fits, rel=1e-12)


def test_a_strategy_has_one_colour_whichever_others_are_compared(report, strategies):
    colours = {each["strategy"]: each["colour"] for each in strategies["curves"]}
    assert len({*colours.values()}) == len(colours)
    for each in strategies_page(report, ["recompute"], 2)["curves"]:
        assert each["colour"] == colours[each["strategy"]]


def test_a_deep_net_is_compared_without_placement_and_says_so(report, monkeypatch):
    monkeypatch.setattr(strategies, "MAX_PLACED_OPS", 3)
    monkeypatch.setattr("layermem.report.comparison.MAX_PLACED_OPS", 3)
    job = report.job
    names = choose_strategies(job, None)
    assert names == ["caffe", "liveness", "sublinear", "recompute"] and choose_points(job, None) == 4
    assert choose_strategies(job, "auto") == ["auto"] and choose_points(job, 2) == 2
    done = []
    page = strategies_page(report, names, 2, lambda doing, count: done.append((doing, count)))
    assert done == [*((name, i) for i, name in enumerate(names)), ("", 4)]
    own, *others = (row for row in page["rows"] if row["strategy"] == "auto"), *page["rows"]
    assert next(own)["peak_bytes"] == report.peak_bytes
    assert {row["strategy"] for row in others} == {*names, "auto"} and not page["memory"] and not page["placed"]
    own_times = {row["bytes"]: row["seconds"]["auto"] for row in page["least_time"] if "auto" in row["seconds"]}
    assert own_times == {report.budget_bytes: pytest.approx(report.seconds)}  # as it was planned for no other budget
    assert any("auto was planned for the budget of this page alone" in note for note in page["left_out"])
    assert any("not placed" in note and "--points" in note for note in page["left_out"])


@pytest.mark.parametrize("points", [1, 101, -3])
def test_a_number_of_budgets_that_makes_no_curve_is_refused(report, points):
    with pytest.raises(InputError, match=f"--points {points} is no number of budgets; give 2 to 100"):
        choose_points(report.job, points)


def test_a_long_curve_of_memory_keeps_its_peak(report, monkeypatch):
    whole = memory_curve(report)
    monkeypatch.setattr(strategies, "STEPS", 7)
    thin = memory_curve(report)
    assert len(thin["bytes"]) == 7 and max(thin["bytes"]) == max(whole["bytes"])
    for i, begin in enumerate(thin["seconds"]):  # never below what is in use in its interval
        end = begin + report.seconds / 7 * 0.999
        inside = [b for t, b in zip(whole["seconds"], whole["bytes"]) if begin <= t < end]
        assert thin["bytes"][i] >= max(inside, default=0)
