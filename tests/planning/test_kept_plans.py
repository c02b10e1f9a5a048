"""Plans that are kept for later questions: more bytes never cost time, and no file can do harm."""

import json
import zlib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from layermem import api
from layermem.nets import resnet
from layermem.planning import kept_plans, pipeline
from layermem.planning.fusion_search import Attempt
from layermem.planning.hints import Hints
from layermem.planning.kept_plans import KeptPlans, planner_digest
from layermem.planning.registry import MINIMUM_MEMORY, StrategyEntry, get_strategy
from layermem.proto.read import read_net_text
from layermem.report.plan_report import PlanReport, evaluate, evaluate_if_fits
from layermem.report.records import start_record
from layermem.report.summary import plan_values, summary
from tests.planning.settings import change
from tools.steady_plans import slower_steps

NET = "prototxt/resnet20/train_val.prototxt"
NO_LINK = Hints(host_budget_bytes=0)
asked: list[int] = []


def erratic(graph, costs, budget_bytes, evaluator, hints):
    """Every other KiB of the budget the plan of the fewest bytes, which recomputes most."""
    asked.append(budget_bytes)
    wasteful = budget_bytes and budget_bytes // 1024 % 2
    return get_strategy("recompute").make(graph, costs, MINIMUM_MEMORY if wasteful else budget_bytes, evaluator, hints)


ERRATIC = StrategyEntry("erratic", "", erratic, combines_others=True)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERMEM_CACHE", str(tmp_path))
    change(monkeypatch, rungs=())
    return tmp_path / "plans"


@pytest.fixture(scope="module")
def job():
    return api.job_of(NET, device="cpu", batch=4, hints=NO_LINK)


def budgets_of(job, count=8):
    """Budgets, a KiB more than an even number and even in turn, from the bytes without recomputation down."""
    least, most = (job.arena.live_bytes(evaluate(job, name, 1).program.plan) for name in ("recompute", "liveness"))
    steps = (least + (most - least) * number // count for number in range(1, count + 1))
    return [step // 2048 * 2048 + 1024 * (number % 2) for number, step in enumerate(steps)]


def kept(job, strategy=ERRATIC):
    return KeptPlans.of(Attempt.of(job, strategy, 1, pipeline.Compiler))


def test_a_plan_that_fits_fewer_bytes_is_a_candidate_for_more(job, folder, monkeypatch):
    budgets = budgets_of(job)
    fresh = []
    for budget in budgets:
        monkeypatch.setenv("LAYERMEM_CACHE", str(folder / str(budget)))
        fresh.append(evaluate(job, ERRATIC, budget).seconds)
    assert any(more > fewer for fewer, more in pairwise(fresh))  # by itself the strategy is slower with more
    monkeypatch.setenv("LAYERMEM_CACHE", str(folder))
    reports = [evaluate(job, ERRATIC, budget) for budget in budgets]
    assert all(more.seconds <= fewer.seconds for fewer, more in pairwise(reports))
    assert all(report.seconds <= own for report, own in zip(reports, fresh))
    assert all(report.peak_bytes <= budget for report, budget in zip(reports, budgets))
    others = [report for report in reports if report.found_for_bytes is not None]
    assert others and all(report.found_for_bytes in budgets for report in others)
    assert "found for" in summary(others[0]) and plan_values(others[0])["found_for_bytes"] == others[0].found_for_bytes
    assert start_record(others[0])["found_for_bytes"] == others[0].found_for_bytes
    assert "found for" not in summary(next(report for report in reports if report.found_for_bytes is None))


def test_a_question_that_was_asked_before_has_the_same_answer_without_a_search(job, folder):
    budget = budgets_of(job)[5]
    first = evaluate(job, ERRATIC, budget)
    asked.clear()
    again = evaluate(job, ERRATIC, budget)
    assert not asked and again.found_for_bytes is None and again.program.plan.order == first.program.plan.order
    assert again.program.train.residencies == first.program.train.residencies
    assert (again.seconds, again.peak_bytes, again.feasible) == (first.seconds, first.peak_bytes, True)


def test_a_budget_below_what_the_search_needs_is_met_by_a_kept_plan(job, folder):
    """As where placement finds no offsets: the strategy refuses a budget that a plan of its own fits."""
    good = evaluate(job, "recompute", 1).program
    kept(job).add(good.arena_bytes, good)
    entry = replace(ERRATIC, make=get_strategy("liveness").make)
    report = evaluate(job, entry, good.arena_bytes)
    assert report.feasible and report.peak_bytes == good.arena_bytes
    assert isinstance(evaluate_if_fits(job, "auto", good.arena_bytes), PlanReport)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no plans",
        zlib.compress(b"no plans"),
        zlib.compress(b"[]"),
        zlib.compress(b'{"budgets": [1], "plans": [{"budget_bytes": 1}]}'),
        zlib.compress(b'{"budgets": [null], "plans": []}'),
        zlib.compress(b"[" * 10**6),
        zlib.compress(b" " * 2**26, 9),
    ],
)
def test_a_damaged_file_is_ignored_and_replaced(job, folder, content):
    budget = budgets_of(job)[4]
    path = kept(job).path
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert evaluate(job, ERRATIC, budget).feasible
    assert kept(job).budgets == [budget] and len(kept(job).plans) == 1


@pytest.mark.parametrize(
    "change_of",
    [
        {"seconds": 1e-9},
        {"arena_bytes": 256},
        {"target_bytes": -1, "arena_bytes": 256},
        {"text": "{}"},
        {"text": '{"strategy": 1}'},
        {"order": []},
        {"order": ["loss.backward"]},
        {"fingerprint": "0"},
        {"slices": "conv1..res1/2"},
        {"slices": "nonsense"},
        {"decisions": [["conv1", 77, "offload"]]},
    ],
)
def test_a_kept_plan_that_is_not_what_it_promises_is_never_used(job, folder, change_of):
    budget = budgets_of(job)[4]
    own = evaluate(job, ERRATIC, budget)
    path = kept(job).path
    saved = json.loads(zlib.decompress(path.read_bytes()))
    plan = {**saved["plans"][0], "seconds": 1e-6, "budget_bytes": 7}
    if change_of.keys() & plan.keys():
        plan |= change_of
    else:
        plan["text"] = json.dumps({**json.loads(plan["text"]), **change_of})
    path.write_bytes(zlib.compress(json.dumps({**saved, "plans": [plan]}).encode()))
    again = evaluate(job, ERRATIC, budget)
    assert (again.seconds, again.peak_bytes, again.found_for_bytes) == (own.seconds, own.peak_bytes, None)
    assert [each.budget_bytes for each in kept(job).plans] == [budget]


def test_another_question_has_another_file(job, folder, monkeypatch):
    faster = replace(job.costs, rates=replace(job.costs.rates, flops=2 * job.costs.rates.flops))
    others = [
        replace(job, costs=faster),
        replace(job, hints=Hints(host_budget_bytes=0, keep=("conv1",))),
        job.with_host_budget(2**20),
        job.with_slices("auto"),
        api.job_of(NET, device="cpu", hints=NO_LINK, batch=3),
    ]
    paths = {kept(each).path for each in (job, *others)} | {kept(job, get_strategy("auto")).path}
    assert len(paths) == 2 + len(others) and kept(replace(job, costs=replace(job.costs))).path in paths
    before = kept(job).path
    change(monkeypatch, request_tries=9)
    assert kept(job).path != before
    assert len(planner_digest()) == 32


def test_single_strategies_and_several_ranks_keep_nothing(job, folder):
    """Ranks plan alone, and have to find the same plan."""
    budget = budgets_of(job)[4]
    assert evaluate(job, "nested", budget).feasible
    ranks = api.job_of(NET, device="cpu", batch=4, hints=NO_LINK, ranks=2)
    assert evaluate(ranks, ERRATIC, 2 * budget).feasible and not folder.exists()


def test_what_two_processes_keep_at_the_same_time_is_kept(job, folder):
    small, large = (evaluate(job, "recompute", budget).program for budget in (budgets_of(job)[0], budgets_of(job)[-1]))
    first, second = kept(job), kept(job)
    first.add(small.arena_bytes, small)
    second.add(large.arena_bytes, large)
    assert kept(job).budgets == [small.arena_bytes, large.arena_bytes] and len(kept(job).plans) == 2
    kept(job).add(large.arena_bytes + 1, replace(small, arena_bytes=large.arena_bytes))
    assert len(kept(job).plans) == 2  # a plan as large that is slower is not kept


def test_the_cache_is_bounded_and_may_be_missing(job, folder, monkeypatch):
    program = evaluate(job, "recompute", 1).program
    monkeypatch.setattr(kept_plans, "MAX_PLANS", 5)
    monkeypatch.setattr(kept_plans, "MAX_BUDGETS", 7)
    for number in range(10):
        faster = replace(program.timeline, seconds=program.seconds - 1e-5 * number)
        larger = replace(program, arena_bytes=program.arena_bytes + 256 * number, timeline=faster)
        kept(job).add(number, larger)
    assert len(kept(job).plans) == 5 and kept(job).budgets == [*range(3, 10)]
    assert min(plan.arena_bytes for plan in kept(job).plans) == program.arena_bytes
    monkeypatch.setattr(kept_plans, "FOLDER_LIMIT_BYTES", kept(job).path.stat().st_size + 1)
    kept(job, get_strategy("auto")).add(1, program)
    assert [*folder.glob("*.plans")] == [kept(job, get_strategy("auto")).path]
    monkeypatch.setenv("LAYERMEM_CACHE", "/dev/null")
    assert evaluate(job, ERRATIC, budgets_of(job)[4]).feasible and not Path("/dev/null/plans").exists()


@pytest.mark.parametrize("wanted", [("off", "auto"), ("..pool1/2", "auto"), ("auto", "ip1/4"), ("auto", None)])
def test_a_plan_with_split_weights_is_placed_again(folder, monkeypatch, wanted):
    job = api.job_of("prototxt/digits/train_val.prototxt", device="cpu", batch=8).with_host_budget("1GiB")
    job = job.with_slices(*wanted)
    found = evaluate(job, "auto", 200_000)
    monkeypatch.setattr(pipeline, "choose_slices", None)  # nothing is searched
    again = evaluate(job, "auto", 200_000)
    assert again.slices == found.slices and again.slices.bands and again.seconds == found.seconds


def test_a_plan_with_fewer_fusions_is_placed_again(folder, monkeypatch):
    job = api.job_of(read_net_text(str(resnet.cifar(8, 8, 8))), device="cuda", batch=8)
    first = evaluate(job, "auto", 1).minimum_program
    assert first.train.graph.not_fused
    found = evaluate(job, "auto", first.arena_bytes)
    monkeypatch.setattr(pipeline, "choose_slices", None)  # nothing is searched
    again = evaluate(job, "auto", first.arena_bytes)
    assert found.not_fused == again.not_fused == first.train.graph.not_fused
    assert again.program.train.residencies == found.program.train.residencies
    assert [plan.target_bytes for plan in kept(job, get_strategy("auto")).plans] == [found.program.target_bytes]


@pytest.mark.samples(2)
@pytest.mark.parametrize(
    ("net", "batch", "count", "options", "settings"),
    [
        ("resnet20", 16, 6, {}, {"device": "cpu"}),
        ("digits", 64, 4, {}, {"device": "cuda"}),
        ("digits", 64, 8, {"split_weights": "ip1/4"}, {"device": "cuda"}),
        ("digits", 8, 4, {"slices": "auto"}, {"device": "reference", "hints": NO_LINK}),
        ("digits", 64, 4, {}, {"device": "cpu", "hints": Hints(host_budget_bytes=2**18)}),
    ],
)
def test_more_bytes_never_cost_time(folder, net, batch, count, options, settings):
    job = api.job_of(f"prototxt/{net}/train_val.prototxt", batch=batch, **settings).with_slices(
        **{"slices": "off", **options}
    )
    least = evaluate(job, "auto", 1).minimum_bytes
    reports = [evaluate(job, "auto", least + least * number // 200) for number in range(count)]
    points = [100 * report.seconds / job.baseline_seconds for report in reports if report.feasible]
    assert len(points) >= count - 1 and not slower_steps(points)
