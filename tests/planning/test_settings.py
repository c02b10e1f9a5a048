"""Each search setting at a value that switches its mechanism off, or nearly so: plans are checked and fit."""

from dataclasses import fields
from math import inf

import pytest

from layermem import api
from layermem._native import SearchSettings
from layermem.planning.pipeline import Compiler
from layermem.planning.settings import SETTINGS, Settings
from layermem.report.plan_report import evaluate
from layermem.schedule.arena_planner import ArenaPlanner
from tests.planning.chains import UNIT, a_second_each, chain
from tests.planning.settings import change

NET = chain(8, parameters=True, overlays=True)
COSTS = a_second_each(NET, UNIT / 2)
OFF = {
    "request_doublings": 0,
    "first_request_divisor": 1,
    "requests_per_octave": 1,
    "request_halvings": 0,
    "copy_limit_halvings": 0,
    "hopeful_ratio": 0.0,
    "as_good_ratio": inf,
    "near_ratio": inf,
    "rungs_per_octave": 1,
    "rungs": (),
    "rung_op_pairs": 0,
    "place_step_seconds": 0.0,
    "place_limited_step_seconds": 0.0,
    "joined_divisors": (),
    "fusion_bound_ratio": inf,
    "fusion_ratio": inf,
    "chains": 1,
    "chain_step_seconds": 1e-6,
    "least_link_share": inf,
    "hopeless_ratio": 0.0,
    "nearly_ratio": 0.0,
    "negligible_ratio": 1.0,
    "removal_starts": 1,
    "removal_ops": 0,
    "large_divisor": 0,
    "short_gap_ops": 0,
    "edits": 0,
    "edits_per_op": 0,
    "large_step_ops": 1,
    "graph_edits": 0,
    "graph_edits_per_value": 0,
    "edits_of_order": 0,
    "large_graph_values": 1,
    "graph_steps_share": 0.0,
    "time_units": 1,
    "most_nodes": 1,
    "groups": 1,
    "most_sets": 1,
    "request_tries": 0,
    "slack_ratios": (),
    "memory_slack_ratio": 0.0,
    "near_bound_ratio": inf,
    "near_least_ratio": inf,
    "least_minimum_ratio": 1.0,
    "least_model_ratio": 1.0,
    "all_chains_step_seconds": 0.0,
    "one_chain_share": 0.0,
}
OF_SLICES_OFF = {
    "unsliced_ratio": 0.0,
    "unbanded_ratio": 0.0,
    "planned_cuts": 0,
    "planned_ops": 0,
    "most_planned_ops": 0,
    "judged_ops": 0,
    "tight_share": 1.0,
    "state_copies": 0,
    "refinements": 0,
    "slice_counts": (2,),
    "bottlenecks": 0,
    "band_share": 0.01,
    "most_norms": 0,
    "least_behind_share": 0.0,
}
NATIVE_OFF = {
    "walk_halvings": 0,
    "walk_lowest": 1.0,
    "walk_highest": 1.0,
    "walk_steps": 0,
    "improved_walks": 1,
    "improve_steps": 0,
    "bisected_exponents": 0,
    "much_less": 0.0,
    "lower_walks": 0,
    "lower_walk_steps": 0,
    "blocks_from": inf,
    "least_blocks": 10**6,
    "chain_units": 1,
    "chain_lowest": 1.0,
    "chain_highest": 1.0,
    "levels": [],
    "high_levels": [],
    "mixed_exponents": 0,
    "mixed_halvings": 0,
    "fitted_per_level": 0,
    "improved_mixed": 0,
    "hopeless": 0.0,
    "mixed_walk_steps": 0,
    "mixed_fit_steps": 0,
    "mixed_improve_steps": 0,
    "tried_per_peak": 0,
    "improve_rounds": 0,
    "chain_ratio": 0.0,
    "hottest": 0.0,
    "repairs": 0,
    "repair_candidates": 1,
    "repair_draws": 0,
    "repair_depth": 0,
    "exchange_percent": 0,
    "shift_percent": 0,
    "hottest_peak": 0.0,
    "exchange_ratio": 0.0,
    "fill_draws": 0,
    "fill_failures": 0,
}


@pytest.fixture(scope="module")
def least_bytes():
    return Compiler(ArenaPlanner([NET], COSTS), "auto").search.min_memory_program.arena_bytes


def check_plans(least_bytes: int) -> None:
    """Programs fit that recompute and offload much, or little."""
    compiler = Compiler(ArenaPlanner([NET], COSTS), "auto")
    for budget in (least_bytes * 3 // 2, least_bytes * 2):
        program = compiler.compile(budget)
        assert program.arena_bytes <= budget and program.train.plan.decisions


def test_every_setting_is_switched_off_by_a_test():
    assert {*OFF, *OF_SLICES_OFF} == {field.name for field in fields(Settings)} - {"native"}
    assert NATIVE_OFF.keys() == {name for name in dir(SearchSettings) if not name.startswith("_")}


@pytest.mark.samples(4)
@pytest.mark.parametrize("name", OFF)
def test_plans_fit_with_one_setting_off(name, least_bytes, monkeypatch):
    assert getattr(SETTINGS, name) != OFF[name]
    change(monkeypatch, **{name: OFF[name]})
    check_plans(least_bytes)


@pytest.mark.samples(4)
@pytest.mark.parametrize("name", NATIVE_OFF)
def test_plans_fit_with_one_native_setting_off(name, least_bytes, monkeypatch):
    native = SearchSettings()
    assert getattr(native, name) != NATIVE_OFF[name]
    setattr(native, name, NATIVE_OFF[name])
    change(monkeypatch, native=native)
    check_plans(least_bytes)


@pytest.fixture(scope="module")
def job():
    return api.job_of("prototxt/digits/train_val.prototxt", device="reference")


@pytest.mark.samples(4)
@pytest.mark.parametrize("name", OF_SLICES_OFF)
def test_slices_fit_with_one_setting_off(name, job, monkeypatch):
    assert getattr(SETTINGS, name) != OF_SLICES_OFF[name]
    change(monkeypatch, **{name: OF_SLICES_OFF[name]})
    report = evaluate(job.with_slices("auto"), "hybrid", "30%")
    assert report.feasible == (report.peak_bytes <= report.budget_bytes)
