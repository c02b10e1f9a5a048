"""Optional fusions of a job: there where they fit, gone where only a step without them does."""

import json
from dataclasses import replace

import pytest

from layermem import api
from layermem.cli.run_job import plan_key
from layermem.errors import InputError
from layermem.nets import resnet
from layermem.ops import CONV_MOMENTS, DGRAD_SUMS_FUSION, MASKED_DGRAD
from layermem.planning.strategies import STRATEGIES
from layermem.proto.read import read_net_text
from layermem.report.fitting import find_fit
from layermem.report.plan_report import evaluate, evaluate_if_fits
from layermem.report.records import start_record
from layermem.report.summary import plan_values, summary

NET = read_net_text(str(resnet.cifar(8, 8, 8)))  # a block of each of three widths
ALL = (MASKED_DGRAD, DGRAD_SUMS_FUSION, CONV_MOMENTS)
SUMS = (DGRAD_SUMS_FUSION,)  # those that need an input earlier


@pytest.fixture(scope="module")
def job():
    return api.job_of(NET, device="cuda", batch=8)


def alone(job):
    """The job with no other step than its own."""
    graphs = tuple(replace(graph, less_fused=None) for graph in job.graphs)
    return replace(job, graphs=graphs, slicer=None)


def minima(job, strategy):
    """Of the step itself, without some fusions, and without any."""
    steps = (job, job.less_fused, job.less_fused.less_fused)
    return [evaluate(alone(each), strategy, 1).minimum_bytes for each in steps]


@pytest.fixture(scope="module")
def between(job):
    """A budget of vdnn-all that only the steps without some of them fit."""
    fused, some, _ = minima(job, "vdnn-all")
    assert some < fused
    return fused - 256


@pytest.fixture(scope="module")
def least(job):
    """A budget that only the step without all of them fits."""
    fused, some, none = minima(job, "vdnn-all")
    assert none < min(fused, some)
    return min(fused, some) - 256


def test_steps_without_them_are_other_graphs_of_the_same_job(job):
    for less, names in ((job.less_fused, SUMS), (job.less_fused.less_fused, ALL)):
        assert job.graphs[0].not_fused == () and less.graphs[0].not_fused == names
        assert job.with_fingerprint(less.graphs[0].fingerprint).graphs == less.graphs
        assert less.graphs[0].fingerprint != job.graphs[0].fingerprint
        assert less.baseline_bytes == job.baseline_bytes and less.baseline_seconds == job.baseline_seconds
    sliced = job.with_slices("whole/2").less_fused
    assert sliced.graphs[0].slices == "whole/2" and sliced.graphs[0].not_fused
    assert job.less_fused.less_fused.less_fused is None
    assert job.with_fingerprint("of another step") is job


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_devices_without_optional_fusions_have_one_step(device):
    assert api.job_of(NET, device=device, batch=8).less_fused is None


@pytest.mark.samples(4)
@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "caffe"])
def test_no_minimum_is_above_that_of_any_step(job, strategy):
    fewest = minima(job, strategy)
    refused = evaluate(job, strategy, 1)
    assert refused.minimum_bytes == refused.refusal.minimum_bytes == min(fewest)
    assert evaluate(job, strategy).minimum_bytes == min(fewest)
    assert evaluate(job, strategy, min(fewest)).feasible


def test_a_step_has_them_where_they_fit(job, between, least):
    assert evaluate(job, "vdnn-all").not_fused == ()
    assert evaluate(job, "vdnn-all", between).not_fused == SUMS
    report = evaluate(job, "vdnn-all", least)
    assert report.feasible and report.not_fused == ALL and report.peak_bytes <= least
    assert evaluate_if_fits(job, "vdnn-all", between).not_fused == SUMS
    assert evaluate_if_fits(job, "vdnn-all", least).not_fused == ALL
    assert f"not fused       {', '.join(ALL[:3])}" in summary(report)
    assert plan_values(report)["not_fused"] == list(ALL) and plan_values(evaluate(job))["not_fused"] == []


def test_a_saved_plan_brings_the_choice_along(job, between, least, tmp_path):
    path = tmp_path / "plan.json"
    for budget, names in ((between, SUMS), (least, ALL)):
        report = evaluate(job, "vdnn-all", budget)
        path.write_text(report.program.plan.to_json(report.job.graphs[0]))
        assert json.loads(path.read_text())["fingerprint"] == report.job.graphs[0].fingerprint
        for plan in (path, report.program.plan):
            loaded = evaluate(job, plan=plan, budget=budget)
            assert loaded.not_fused == names and loaded.peak_bytes == report.peak_bytes
            assert start_record(loaded)["fingerprint"] == start_record(report)["fingerprint"]
    fused = evaluate(job, "vdnn-all").program.plan
    assert evaluate(job, plan=fused).not_fused == () and not evaluate(job, plan=fused, budget=between).feasible
    with pytest.raises(InputError, match="was made for another net"):
        evaluate(api.job_of(NET, device="cpu", batch=8), plan=path)


def test_a_step_does_without_those_that_need_an_input_earlier_where_that_is_faster(job, between):
    fused, chosen = (evaluate(each, "vdnn-all", between + 256) for each in (alone(job), job))
    assert fused.feasible and chosen.not_fused == SUMS and chosen.seconds < fused.seconds


def test_the_first_record_of_a_log_has_the_choice(job, between):
    apart, fused = (start_record(evaluate(job, "vdnn-all", budget)) for budget in (between, None))
    assert apart["not_fused"] == list(SUMS) and fused["not_fused"] == []
    assert plan_key({**apart, "budget_bytes": None}) != plan_key(fused)


def test_a_larger_batch_fits_without_them():
    jobs = {}

    def make(batch):
        if batch not in jobs:
            jobs[batch] = api.job_of(NET, device="cuda", batch=batch)
        return jobs[batch]

    def fused(batch):
        return alone(make(batch))

    budget_bytes = 24 << 20
    found, smaller = (find_fit(each, range(1, 200), "vdnn-all", budget_bytes) for each in (make, fused))
    assert found.size > smaller.size and found.report.peak_bytes <= budget_bytes
    assert found.report.not_fused and set(found.report.not_fused) <= set(ALL)
    assert not evaluate(make(found.size + 1), "vdnn-all", budget_bytes).feasible
