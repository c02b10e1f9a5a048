"""The plan of a step as an aligned text, and as values for JSON.

LeNet x64   device cpu   strategy auto   budget 5.00 MiB
peak            4.91 MiB (5,148,160 bytes), 33.5 % of the baseline
peak at         backward conv2.wgrad (tick 22 of 31)
...
"""

from __future__ import annotations

from layermem.graph.step_slicer import Slices
from layermem.ops import FP32
from layermem.planning.bounds import is_sliced
from layermem.planning.job import Job
from layermem.report.plan_report import PlanReport, kind_of
from layermem.report.refusal import host_budget_facts
from layermem.schedule.ir import Residency, Schedule
from layermem.utils.text import LABEL_WIDTH, printable, wrap
from layermem.utils.units import format_beside, format_bytes, format_exact_bytes, format_seconds, format_share

LARGEST = 5  # buffers at the peak that the text lists
DETAILS = ("peak at", "live bytes", "largest", "fragmentation", "base", "lower bounds", "optimality gap", "baseline",
           "BVLC Caffe")  # fmt: skip
LARGEST_JSON = 20  # buffers at the peak that the JSON lists
KIND_NAMES = {
    "parameter": "parameters",
    "history": "optimizer state",
    "gradient": "parameter gradients",
    "state": "state of layers",
    "data": "activations",
    "diff": "gradients",
    "stash": "stashes",
    "workspace": "workspace",
}


def summary(report: PlanReport, *, minimum: bool = False, short: bool = False) -> str:
    """The lines that `plan` prints, and those that `train` begins with, which are `short`: without DETAILS;
    `minimum` adds the smallest budget, which takes a search."""
    budget = f"   budget {format_bytes(report.budget_bytes)}" if report.budget_bytes is not None else ""
    storage = f"   storage {report.storage}" if report.storage != FP32 else ""
    facts = [each for each in plan_facts(report, minimum=minimum) if not (short and each[0] in DETAILS)]
    lines = [f"{printable(report.job.title)}   device {report.device}{storage}   strategy {report.strategy}{budget}"]
    lines += [wrap(f"{label:<{LABEL_WIDTH}}{text}") for label, text in facts]
    return "\n".join(lines) + "\n"


def plan_facts(report: PlanReport, *, minimum: bool = False) -> list[tuple[str, str]]:
    """The lines below the first one: labels and texts."""
    facts = [*ranks_facts(report.job), *_slices_facts(report), *_fusions_facts(report), *_memory_facts(report)]
    facts += [*_time_facts(report), *_baseline_facts(report)]
    facts += [("warning", warning) for warning in report.job.warnings]
    if minimum:
        at = 1 + [label for label, _ in facts].index("peak")
        facts.insert(at, ("minimum", f"{format_exact_bytes(report.minimum_bytes)} of strategy {report.strategy}"))
    return facts


def ranks_facts(job: Job) -> list[tuple[str, str]]:
    """The rank to which the plan belongs and the shared micro-batches, with several ranks."""
    return [("ranks", f"{job.ranks} an iteration")] if job.ranks.size > 1 else []


def costs_facts(job: Job) -> list[tuple[str, str]]:
    """The source of the times of a GPU."""
    source = job.costs.source(job.graphs[0].device)
    return [] if source is None else [("costs", source)]


def spill_facts(job: Job) -> list[tuple[str, str]]:
    """The spill file, with its rates and their source."""
    return [("host memory", f"is {job.costs.spill}")] if job.costs.spill is not None else []


def slices_values(report: PlanReport) -> dict[str, str | None]:
    """The slices of the batch and the split weights, as users write them; None without."""
    slices = report.slices or Slices(None)
    return {"slices": slices.slices or None, "split_weights": slices.split_weights or None}


def _slices_facts(report: PlanReport) -> list[tuple[str, str]]:
    slices = report.slices
    if slices is None:
        return []
    facts = [] if slices.cut is None else [("slices", f"{printable(slices.cut.layers)} in {slices.cut.count}")]
    if slices.bands:
        rows = (f"rows of {printable(each.layer)} in {each.count} bands" for each in slices.bands)
        facts.append(("weights", ", ".join(rows)))
    return facts


def _fusions_facts(report: PlanReport) -> list[tuple[str, str]]:
    return [("not fused", f"{', '.join(report.not_fused)}: their bytes do not fit")] if report.not_fused else []


def _memory_facts(report: PlanReport) -> list[tuple[str, str]]:
    share = format_share(report.peak_bytes, report.job.baseline_bytes)
    instruction, schedule = report.peak_instruction, report.peak_schedule
    where = "" if schedule is report.program.train else f", {schedule.graph.name}"
    kinds = (f"{KIND_NAMES[kind]} {format_bytes(nbytes)}" for kind, nbytes in report.peak_bytes_by_kind.items())
    largest = (f"{buffer_name(schedule, r)} {format_bytes(r.nbytes)}" for r in report.peak_residencies[:LARGEST])
    facts = [
        ("peak", f"{format_exact_bytes(report.peak_bytes)}, {share} of the baseline"),
        (
            "peak at",
            f"{instruction.kind} {instruction.what} (tick {instruction.tick} of {len(schedule.instructions)}{where})",
        ),
        ("live bytes", ", ".join(kinds)),
        ("largest", ", ".join(largest)),
    ]
    if report.fragmentation_bytes:
        facts.append(("fragmentation", f"{format_bytes(report.fragmentation_bytes)} above peak live bytes"))
    if report.offloaded_bytes:
        facts.append(("offloaded", f"{format_bytes(report.offloaded_bytes)} per step"))
    if report.program.host_bytes:
        content = "" if report.offloaded_bytes else f" ({_host_content(report)})"
        facts.append(("host memory", f"{format_bytes(report.program.host_bytes)}{content}"))
    facts += [("host memory", text) for _, text in host_budget_facts(report.job.hints)]
    facts += spill_facts(report.job)
    if report.recomputed_ops:
        facts.append(("recomputed", f"{report.recomputed_ops:,} ops per step"))
    return facts


def _host_content(report: PlanReport) -> str:
    """The contents of host memory in a step that offloads nothing."""
    ops = [instruction.op for schedule in report.program.schedules for instruction in schedule.instructions]
    contents = {
        "persistent buffers": bool(report.program.persistent.host),
        "messages of ranks": any(op.host_workspace_bytes for op in ops if op is not None),
    }
    return " and ".join(name for name, there in contents.items() if there)


def _time_facts(report: PlanReport) -> list[tuple[str, str]]:
    """Predicted time and its certificate: lower bounds of all plans, and the distance from them."""
    source = "predicted from measured ops" if report.job.costs.measured else "predicted"
    within = "this budget" if report.budget_bytes == report.available_bytes else format_bytes(report.available_bytes)
    facts = [
        (
            "time",
            f"{format_seconds(report.seconds)} per step ({source}), {format_beside(report.overhead, 'the baseline')}",
        )
    ]
    if report.items_per_second:
        facts.append(("throughput", f"{report.items_per_second:,.0f} items/s"))
    if report.found_for_bytes is not None:
        facts.append(
            ("found for", f"a budget of {format_bytes(report.found_for_bytes)}, before; kept in the cache of plans")
        )
    facts += costs_facts(report.job)
    if report.base:
        facts.append(("base", f"{report.base}{' with offload' if report.base_is_offloaded else ''}"))
    bounds = f"{format_bytes(report.bound_bytes)}; {format_seconds(report.bound_seconds)} within {within}"
    scope = ", in these slices" if is_sliced(report.job.graphs[0]) else ""
    facts += [
        ("lower bounds", bounds + scope),
        ("optimality gap", f"<= {format_share(report.optimality_gap, 1.0)} of a baseline step{scope}"),
    ]
    return facts


def _baseline_facts(report: PlanReport) -> list[tuple[str, str]]:
    job = report.job
    baseline = f"{format_bytes(job.baseline_bytes)}, {format_seconds(job.baseline_seconds)} (strategy caffe)"
    return [("baseline", baseline), ("BVLC Caffe", f"{format_bytes(job.bvlc_bytes)} (computed)")]


def buffer_name(schedule: Schedule, residency: Residency) -> str:
    """The name of a buffer as the summary lists it; the workspace of an op is "workspace"."""
    return residency.buffer if residency.buffer in schedule.graph.buffers else "workspace"


def peaks(predicted: int, measured: int, label: str = "peak") -> str:
    """The line of a run with the predicted peak and the measured one, which is read from the arena."""
    return wrap(f"{label:<{LABEL_WIDTH}}predicted {predicted:,} bytes, measured {measured:,} bytes")


def process_line(expected_bytes: int, parts: str, max_resident_bytes: int = 0) -> str:
    """The memory of the process: expected before a run, and after it also the measured maximum."""
    measured = f"max RSS {format_bytes(max_resident_bytes)}, " if max_resident_bytes else ""
    return wrap(f"{'process':<{LABEL_WIDTH}}{measured}expected {format_bytes(expected_bytes)}: {parts}")


def plan_values(report: PlanReport, *, minimum: bool = False) -> dict[str, object]:
    """The summary as values for programs.

    caffe_bytes     strategy `caffe`, the baseline      bvlc_bytes     BVLC Caffe, computed
    not_fused       fusions that the step leaves out, because their bytes do not fit
    base            the strategy from which a plan started whose strategy combines others, else null
    lower_bound_bytes      of any plan of this graph    lower_bound_seconds   of any within the budget
    found_for_bytes the other budget for which a kept plan was found, else null
    optimality_gap  upper bound of the time that a better plan could save, as a share of the baseline's
    feasible        whether it fits the budget          minimum_bytes  the smallest budget that the strategy fits,
                    searched if `minimum` is set or if nothing fits; else None
    If it does not fit, the other values are those of the strategy's smallest plan, and `message` is the refusal.
    """
    return {
        "net": report.job.title,
        "strategy": report.strategy,
        "base": report.base or None,
        **slices_values(report),
        "not_fused": list(report.not_fused),
        **_machine_values(report),
        "feasible": report.feasible,
        "peak_bytes": report.peak_bytes,
        "budget_bytes": report.budget_bytes,
        "found_for_bytes": report.found_for_bytes,
        "minimum_bytes": report.minimum_bytes if minimum or not report.feasible else None,
        "caffe_bytes": report.job.baseline_bytes,
        "bvlc_bytes": report.job.bvlc_bytes,
        **_program_values(report),
        "predicted_seconds": report.seconds,
        "items_per_second": report.items_per_second or None,
        "baseline_seconds": report.job.baseline_seconds,
        "overhead": report.overhead,
        **_bound_values(report),
        "peak": _peak_values(report),
        "fingerprint": report.job.graphs[0].fingerprint,
        "warnings": report.job.warnings,
        "message": str(report.refusal) if report.refusal is not None else None,
    }


def _program_values(report: PlanReport) -> dict[str, object]:
    return {
        "max_live_bytes": report.program.max_live_bytes,
        "fragmentation_bytes": report.fragmentation_bytes,
        "parameter_bytes": report.parameter_bytes,
        "host_bytes": report.program.host_bytes,
        "offloaded_bytes": report.offloaded_bytes,
        "recomputed_ops": report.recomputed_ops,
    }


def _machine_values(report: PlanReport) -> dict[str, object]:
    """The device of the step, the source of its costs, and its rank."""
    costs, ranks = report.job.costs, report.job.ranks
    return {
        "device": report.device,
        "storage": report.storage,
        "gpu": costs.gpu.name if costs.gpu is not None else None,
        "costs": "measured" if costs.measured else "modelled",
        "spill": costs.spill.values if costs.spill is not None else None,
        "ranks": ranks.size,
        "rank": ranks.rank,
        "micro_batches": ranks.micro_batches,
    }


def _bound_values(report: PlanReport) -> dict[str, object]:
    return {
        "lower_bound_bytes": report.bound_bytes,
        "lower_bound_seconds": report.bound_seconds,
        "optimality_gap": report.optimality_gap,
    }


def _peak_values(report: PlanReport) -> dict[str, object]:
    """The instruction at which most bytes are in use, and what they are."""
    instruction, schedule = report.peak_instruction, report.peak_schedule
    return {
        "graph": schedule.graph.name,
        "tick": instruction.tick,
        "ticks": len(schedule.instructions),
        "kind": instruction.kind,
        "what": instruction.what,
        "bytes_by_kind": report.peak_bytes_by_kind,
        "largest": [
            {"buffer": r.buffer, "kind": kind_of(schedule.graph, r), "bytes": r.nbytes, "offset": r.offset}
            for r in report.peak_residencies[:LARGEST_JSON]
        ],
    }
