"""Optional fusions of a job: there where they fit, gone where only a step without them does."""

import json
from dataclasses import replace

import pytest

from layermem import api
from layermem.cli.run_job import plan_key
from layermem.errors import InputError
from layermem.ops import CONV_MOMENTS, DGRAD_SUMS, MASKED_DGRAD
from layermem.planning.strategies import STRATEGIES
from layermem.report.fitting import Fitting
from layermem.report.plan_report import evaluate, evaluate_if_fits
from layermem.report.records import start_record
from layermem.report.summary import plan_values, summary

NET = "prototxt/resnet20/train_val.prototxt"
ALL = (MASKED_DGRAD, DGRAD_SUMS, CONV_MOMENTS)


@pytest.fixture(scope="module")
def job():
    return api.job_of(NET, device="cuda", batch=8)


@pytest.fixture(scope="module")
def between(job):
    """A budget of vdnn-all that only the step without them fits."""
    fused = replace(job, slicer_apart=None)
    assert evaluate(job.apart, "vdnn-all").minimum_bytes < evaluate(fused, "vdnn-all").minimum_bytes
    return evaluate(fused, "vdnn-all").minimum_bytes - 256


def test_the_step_without_them_is_another_graph_of_the_same_job(job):
    apart = job.apart
    assert job.graphs[0].apart == () and apart.graphs[0].apart == ALL and apart.apart is None
    assert apart.graphs[0].fingerprint != job.graphs[0].fingerprint
    assert apart.baseline_bytes == job.baseline_bytes and apart.baseline_seconds == job.baseline_seconds
    sliced = job.with_slices("whole/2").apart
    assert sliced.graphs[0].apart == ALL and sliced.graphs[0].slices == "whole/2"
    assert apart.with_slices("whole/2").graphs == sliced.graphs
    assert apart.with_slices("off").graphs == apart.graphs


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_devices_without_optional_fusions_have_one_step(device):
    assert api.job_of(NET, device=device, batch=8).apart is None


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "caffe"])
def test_no_minimum_is_above_that_of_either_step(job, strategy):
    alone = [evaluate(replace(each, slicer_apart=None), strategy, 1).minimum_bytes for each in (job, job.apart)]
    refused = evaluate(job, strategy, 1)
    assert refused.minimum_bytes == refused.refusal.minimum_bytes == min(alone)
    assert evaluate(job, strategy).minimum_bytes == min(alone)
    assert evaluate(job, strategy, min(alone)).feasible


def test_a_step_has_them_where_they_fit(job, between):
    assert evaluate(job, "vdnn-all").apart == ()
    assert evaluate(job, "vdnn-all", between + 256).apart == ()
    report = evaluate(job, "vdnn-all", between)
    assert report.feasible and report.apart == ALL and report.peak_bytes <= between
    assert evaluate_if_fits(job, "vdnn-all", between).apart == ALL
    assert "not fused       Conv.dgrad+relu, Conv.dgrad+sums, Conv.forward+moments" in summary(report)
    assert plan_values(report)["apart"] == list(ALL) and plan_values(evaluate(job))["apart"] == []


def test_a_saved_plan_brings_the_choice_along(job, between, tmp_path):
    report = evaluate(job, "vdnn-all", between)
    path = tmp_path / "plan.json"
    path.write_text(report.program.plan.to_json(report.job.graphs[0]))
    assert json.loads(path.read_text())["apart"] == list(ALL)
    for plan in (path, report.program.plan):
        loaded = evaluate(job, plan=plan, budget=between)
        assert loaded.apart == ALL and loaded.peak_bytes == report.peak_bytes
        assert start_record(loaded)["fingerprint"] == start_record(report)["fingerprint"]
    fused = evaluate(job, "vdnn-all").program.plan
    assert evaluate(job, plan=fused).apart == () and not evaluate(job, plan=fused, budget=between).feasible
    with pytest.raises(InputError, match="was made for another net"):
        evaluate(api.job_of(NET, device="cpu", batch=8), plan=path)


def test_the_first_record_of_a_log_has_the_choice(job, between):
    apart, fused = (start_record(evaluate(job, "vdnn-all", budget)) for budget in (between, None))
    assert apart["apart"] == list(ALL) and fused["apart"] == []
    assert plan_key({**apart, "budget_bytes": None}) != plan_key(fused)


def test_a_larger_batch_fits_without_them():
    jobs = {}

    def make(batch):
        if batch not in jobs:
            jobs[batch] = api.job_of(NET, device="cuda", batch=batch)
        return jobs[batch]

    def fused(batch):
        return replace(make(batch), slicer_apart=None)

    budget_bytes = 24 << 20
    found, alone = (Fitting(each, range(1, 200), budget_bytes, same_ops=True).fit("vdnn-all") for each in (make, fused))
    assert found.size > alone.size and found.report.apart == ALL and found.report.peak_bytes <= budget_bytes
    assert not evaluate(make(found.size + 1), "vdnn-all", budget_bytes).feasible
