"""The text of a refusal: the budget, the minimum, the peak, and the strategies that would fit."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from layermem.api import build_net
from layermem.backends.base import get_device
from layermem.data import probe
from layermem.errors import BudgetError
from layermem.graph.net import Net
from layermem.planning.costs import model_costs
from layermem.planning.hints import Hints
from layermem.planning.job import Job
from layermem.planning.strategies import STRATEGIES
from layermem.proto.read import read_net_text
from layermem.report.plan_report import evaluate
from layermem.solver.jobs import StepOptions, net_job
from layermem.utils.units import format_below, format_bytes, format_exact_bytes
from tests.nets import NETS
from tests.planning.jobs import solver_job


@pytest.fixture
def job(tmp_path):
    graphs, costs = solver_job("chain", tmp_path)
    return Job("chain", (), tuple(graphs), costs)


def smallest(job, strategy):
    return evaluate(job, strategy, 1).minimum_bytes


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_refusal_names_the_budget_the_minimum_and_the_peak(job, strategy):
    refusal = evaluate(job, strategy, 1000).refusal
    sentence, peak = str(refusal).splitlines()
    assert sentence == (
        f"budget {format_below(1000, refusal.minimum_bytes)} is below the minimum of '{strategy}', "
        f"{format_exact_bytes(refusal.minimum_bytes)}."
    )
    assert re.fullmatch(r"  peak at  \w+ \S+ \(tick \d+( of tiny test)?\): \S+ [\d.]+ K?i?B(, .*)?", peak), peak


def test_a_refusal_says_what_hints_cost(job):
    kept = replace(job, hints=Hints(keep=("*",)))
    least = smallest(job, "recompute")
    text = str(evaluate(kept, "recompute", least).explain_refusal())
    assert re.search(rf"hints +without them the minimum is {format_bytes(least)}", text)
    assert "hints" not in str(evaluate(job, "recompute", 256).explain_refusal())


def test_a_refusal_names_the_strategies_that_fit_and_the_bytes_that_they_need(job):
    hybrid = smallest(job, "hybrid")
    refusal = evaluate(job, "recompute", hybrid).explain_refusal()
    assert re.search(r"fits +hybrid [\d.]+ KiB$", str(refusal))
    refusal = evaluate(job, "recompute", hybrid - 256).explain_refusal()
    assert re.search(r"fits +auto [\d.]+ KiB$", str(refusal))  # offload and recompute together
    assert "no other strategy fits this budget" in str(evaluate(job, "recompute", 256).explain_refusal())


def test_a_refusal_of_a_saved_plan_suggests_every_strategy_that_fits(job):
    report = evaluate(job, budget=smallest(job, "hybrid"), plan=evaluate(job, "liveness").program.plan)
    assert re.search(r"minimum of the saved plan, .*(?s:.)*fits +.*hybrid ", str(report.explain_refusal()))


def test_a_refusal_says_what_slices_of_the_batch_would_do():
    net = build_net(Path(__file__).parents[2] / "prototxt" / "digits" / "train_val.prototxt")
    job = net_job(net, StepOptions(device="reference", costs=model_costs("reference")))

    def slices(budget_bytes):
        return [
            text for name, text in evaluate(job, "auto", budget_bytes).explain_refusal().details if name == "slices"
        ]

    least = evaluate(job.with_slices("auto"), "auto", 256).peak_bytes
    assert least < evaluate(job, "auto", 256).peak_bytes
    assert slices(least) == [f"none; with --slices auto a plan fits, in {format_bytes(least)}"]
    assert slices(256) == ["none; no plan fits with --slices auto either"]


def test_a_refusal_says_nothing_of_slices_that_cannot_be_made_or_were_asked_for():
    device, costs = get_device("reference"), model_costs("reference")
    chain, normalized = (
        net_job(Net(read_net_text(NETS[name]), 0, probe=probe), StepOptions(device=device, costs=costs))
        for name in ("chain", "bn")
    )
    assert "--slices" in str(evaluate(chain, "auto", 256).explain_refusal())
    assert "--slices" not in str(evaluate(normalized, "auto", 256).explain_refusal())
    assert "--slices" not in str(evaluate(chain.with_slices("whole/2"), "auto", 256).explain_refusal())


def test_a_refusal_names_the_host_budget_that_it_kept(job):
    budget = smallest(job, "auto")
    report = evaluate(job.with_host_budget("2KiB"), "auto", budget)
    assert "is below the minimum of 'auto' with 2.00 KiB of host memory, " in str(report.refusal)
    assert report.refusal.minimum_bytes > budget and report.job.hints == Hints(host_budget_bytes=2048)


def test_a_plan_that_offloads_more_than_the_host_budget_is_refused_at_once(job):
    plan = evaluate(job, "hybrid", 1).program.plan
    with pytest.raises(BudgetError, match=r"^host budget 256 B is below what 'hybrid' needs there") as caught:
        evaluate(job.with_host_budget(256), plan=plan)
    assert caught.value.host and caught.value.budget_bytes == 256


def test_a_program_that_fits_is_given_and_one_that_does_not_is_refused_with_suggestions(job):
    assert evaluate(job, "liveness").feasible_program().arena_bytes > 0
    with pytest.raises(BudgetError, match=r"fits +hybrid"):
        evaluate(job, "recompute", smallest(job, "hybrid")).feasible_program()
