"""The plan of a step as text and as values."""

import pytest

from layermem.backends.base import get_device
from layermem.graph.net import Net
from layermem.planning.plan import Plan
from layermem.planning.registry import STRATEGIES
from layermem.proto.read import read_net_text
from layermem.report.plan_report import evaluate
from layermem.report.summary import peaks, plan_values, process_line, summary
from layermem.solver.jobs import StepOptions, net_job
from layermem.utils.text import LABEL_WIDTH
from layermem.utils.units import format_bytes, format_exact_bytes
from tests.nets import NETS

REFERENCE = get_device("reference")


def report_of(strategy: str, budget: object = None, net: str = "chain"):
    job = net_job(Net(read_net_text(NETS[net]), 0), StepOptions(device=REFERENCE)).with_host_budget("1TiB")
    return evaluate(job, strategy, budget)


def facts_of(text: str) -> dict[str, str]:
    """label -> text, with continuation lines joined."""
    facts: dict[str, str] = {}
    for line in text.splitlines()[1:]:
        label = line[:LABEL_WIDTH].strip() or next(reversed(facts))
        facts[label] = f"{facts.get(label, '')} {line[LABEL_WIDTH:]}".strip()
    return facts


def test_the_first_line_names_net_device_strategy_and_budget():
    assert summary(report_of("hybrid", "90%")).splitlines()[0].split("   ")[1:3] == [
        "device reference",
        "strategy hybrid",
    ]
    assert "budget" in summary(report_of("hybrid", "90%")).splitlines()[0]
    assert "budget" not in summary(report_of("liveness")).splitlines()[0]


def test_sizes_are_those_of_the_report():
    report = report_of("liveness")
    facts = facts_of(summary(report))
    assert facts["peak"].startswith(f"{format_exact_bytes(report.peak_bytes)}, ")
    assert facts["baseline"].startswith(format_bytes(report.job.baseline_bytes))
    instruction = report.peak_instruction
    assert facts["peak at"] == f"{instruction.kind} {instruction.what} (tick {instruction.tick} of " + (
        f"{len(report.peak_schedule.instructions)})"
    )
    assert sum(report.peak_bytes_by_kind.values()) == report.program.max_live_bytes


def test_offloading_recomputation_and_fragmentation_are_stated_where_there_are_any():
    assert str(report_of("liveness")) + "\n" == summary(report_of("liveness"))
    short = facts_of(summary(report_of("liveness"), short=True))
    assert {"peak", "time"} <= set(short) and not {"optimality gap", "lower bounds", "live bytes"} & set(short)
    assert not {"offloaded", "recomputed", "host memory"} & set(facts_of(summary(report_of("liveness"))))
    assert "per step" in facts_of(summary(report_of("inter")))["offloaded"]
    lean = report_of("recompute", 1)
    assert facts_of(summary(lean))["recomputed"] == f"{lean.recomputed_ops} ops per step"


def test_the_optimality_gap_is_the_distance_from_the_bound():
    report = report_of("inter")
    gap = (report.seconds - report.bound_seconds) / report.job.baseline_seconds
    assert facts_of(summary(report))["optimality gap"] == f"<= {100 * gap:.1f} % of a baseline step"


def test_the_plan_of_auto_says_with_which_strategy_it_began():
    report = report_of("auto", "60%")
    base = report.program.train.plan.base
    assert base in STRATEGIES and base != "auto" and facts_of(summary(report))["base"].split()[0] == base
    values = plan_values(report)
    assert values["base"] == base and values["optimality_gap"] == report.optimality_gap >= 0
    saved = Plan.from_json(report.program.train.plan.to_json(report.job.graphs[0]), report.job.graphs[0])
    assert saved.base == base
    alone = report_of("recompute", "60%")
    assert "base" not in facts_of(summary(alone)) and plan_values(alone)["base"] is None


@pytest.mark.parametrize("columns", [60, 80, 100, 300])
def test_no_line_is_wider_than_the_terminal_or_a_hundred_columns(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    for line in summary(report_of("hybrid", 1, net="inception")).splitlines()[1:]:
        assert len(line) <= min(columns, 100)


def test_values_are_those_of_the_report_and_refusals_have_their_message():
    report = report_of("hybrid", 1)
    values = plan_values(report)
    assert values["feasible"] is False and str(values["message"]).startswith(
        "budget 1 B is below the minimum of 'hybrid'"
    )
    assert values["peak_bytes"] == values["minimum_bytes"] == report.peak_bytes
    assert values["peak"]["tick"] == report.peak_instruction.tick
    assert sum(values["peak"]["bytes_by_kind"].values()) == values["max_live_bytes"]
    assert values["fragmentation_bytes"] == values["peak_bytes"] - values["max_live_bytes"]


def test_a_run_ends_with_both_peaks_and_the_resident_set():
    assert " ".join(peaks(1000, 2000).split()) == "peak predicted 1,000 bytes, measured 2,000 bytes"
    before, after = process_line(2**30, "arena 1.00 GiB"), process_line(2**30, "arena 1.00 GiB", 2**31)
    assert " ".join(before.split()) == "process expected 1.00 GiB: arena 1.00 GiB"
    assert " ".join(after.split()) == "process max RSS 2.00 GiB, expected 1.00 GiB: arena 1.00 GiB"
