"""Plans of steps in slices of the batch, beside plans of the same steps without.  Plans only; nothing runs.

    python tools/bench_slices.py [--out docs/benchmarks/slices.md] [--only vgg16]

Device cuda with tensor cores (tf32), by the model of its costs: 190 TFLOPS, 3 TB/s, 4 us a launch, and the link that a
row names.  Overheads are predicted, against the step without slices that keeps everything.  With --out, the
section of that file with times measured on the cpu device stays as it is.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench_strategies import MODELLED, NETS, machine, mib, table

from layermem import api
from layermem.backends.base import get_device
from layermem.graph.ops import FORWARD, UPDATE, Graph, Op
from layermem.ops.normalization import BatchNorm, BatchNormScale
from layermem.planning.hints import Hints
from layermem.planning.job import Job
from layermem.report.plan_report import PlanReport, evaluate
from layermem.utils.units import aligned, format_change

# net, batch, bytes per second of the link (0: nothing is copied), budgets in MiB
BUDGETS = [
    ("vgg16", 64, 45e9, (1200, 1700, 2200, 2700)),
    ("vgg16", 64, 12e9, (2200,)),
    ("unet", 8, 0.0, (1000, 1800)),
    ("googlenet", 256, 0.0, (794, 1277, 1922)),
]
WHOLE = [("vgg16", 64), ("unet", 8), ("googlenet", 256)]  # in slices from end to end, nothing recomputed
COUNTS = (2, 4, 8)
MEASURED = "## Measured on the cpu device\n"
LEAST = [("vgg16", 64, "conv1_1..pool2/4"), ("unet", 8, "whole/8"), ("googlenet", 256, "whole/8")]
BANDS = [("vgg16", 64, "conv1_1..pool3/8", "fc6/rows/8,fc7/rows/4", (400, 600, 800, 1000, 1200, 1600))]

# In training, BatchNorm mixes the images of a batch: it takes two passes.
WITH_BATCH_NORM = [
    ("resnet50", 96),
    ("resnet152", 48),
    ("resnext50", 64),
    ("densenet121", 64),
    ("densenet161", 32),
    ("inception_v3", 32),
    ("mobilenet1", 128),
    ("mobilenet2", 128),
    ("pspnet", 1),
]


NORM_BUDGETS = [
    ("mobilenet2", 128, (700, 900, 1200, 1600)),
    ("mobilenet1", 128, (600, 800, 1000, 1300)),
    ("resnet50", 96, (2000,)),
]
NORM_LEAST = [  # the last one is to show where slices do not pay
    ("mobilenet2", 128, "conv1..conv3/project/8"),
    ("mobilenet1", 128, "conv1..conv5/dw/4"),
    ("inception_v3", 32, "conv1..pool5/4"),
    ("resnet50", 96, "conv1..pool1/4"),
]


def job_of(net: str, batch: int, link: float) -> Job:
    hints = Hints() if link else Hints(host_budget_bytes=0)
    device = get_device("cuda", precision="tf32")
    job = api.job_of(NETS / net / "train_val.prototxt", device=device, batch=batch, hints=hints)
    rates = replace(job.costs.rates, d2h=link or 1.0, h2d=link or 1.0)
    return replace(job, costs=replace(job.costs, rates=rates))


def cell(report: PlanReport) -> str:
    """ "+1.9 %", or the least budget of what does not fit."""
    return format_change(report.overhead) if report.feasible else f"needs {mib(report.minimum_bytes)}"


def under_budgets(only: str) -> Iterator[str]:
    yield "## Strategy `auto` under a budget\n"
    yield from budget_table(only, BUDGETS)


def norms_least(only: str) -> Iterator[str]:
    yield "## Nets with BatchNorm, in two passes: the least of strategy `nested`, MiB, and its overhead\n"
    rows = []
    for net, batch, cut in NORM_LEAST:
        if only not in net:
            continue
        row = [f"{net} x{batch}"]
        for slices in ("off", cut):
            job = job_of(net, batch, 0.0).with_slices(slices)
            found = evaluate(job, "nested", evaluate(job, "nested", 1).minimum_bytes)
            row += [slices] * (slices == cut) + [mib(found.peak_bytes), format_change(found.overhead)]
        rows.append(row)
        print(" | ".join(row), file=sys.stderr, flush=True)
    yield from table(["net", "without slices", "overhead", "slices", "with", "overhead"], rows)


def norms_under_budgets(only: str) -> Iterator[str]:
    yield "## Nets with BatchNorm, in two passes: strategy `auto` under a budget\n"
    rows = [(net, batch, link, budgets) for net, batch, budgets in NORM_BUDGETS for link in (0.0, 45e9)]
    yield from budget_table(only, rows)


def budget_table(only: str, cases: Iterable[tuple[str, int, float, tuple[int, ...]]]) -> Iterator[str]:
    rows = []
    for net, batch, link, budgets in cases:
        if only not in net:
            continue
        job = job_of(net, batch, link)
        for budget in budgets:
            start = time.perf_counter()
            without = evaluate(job, "auto", budget * 2**20)
            between = time.perf_counter()
            chosen = evaluate(job.with_slices("auto"), "auto", budget * 2**20)
            seconds = [between - start, time.perf_counter() - between]
            rows.append(
                [
                    f"{net} x{batch}",
                    f"{link / 1e9:g} GB/s" if link else "none",
                    f"{budget:,}",
                    cell(without),
                    f"{chosen.slices}" if chosen.slices else "off",
                    cell(chosen),
                    *(f"{each:.1f}" for each in seconds),
                ]
            )
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    head = [
        "net",
        "link",
        "budget, MiB",
        "without slices",
        "`--slices auto`",
        "overhead",
        "seconds of planning",
        "with",
    ]
    yield from table(head, rows)


def in_bands(only: str) -> Iterator[str]:
    yield "## Bands of rows\n"
    rows = []
    for net, batch, cut, bands, budgets in BANDS:
        if only not in net:
            continue
        job = job_of(net, batch, 45e9)
        for budget in budgets:
            plans = [evaluate(job.with_slices(each), "auto", budget * 2**20) for each in (cut, f"{cut},{bands}")]
            rows.append([f"{net} x{batch}", f"{budget:,}", cut, cell(plans[0]), bands, cell(plans[1])])
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    yield from table(["net", "budget, MiB", "slices", "overhead", "and bands", "overhead"], rows)


def whole_steps(only: str) -> Iterator[str]:
    yield "## The whole step in slices: peak in MiB and overhead, with no recomputation and no copies\n"
    rows = []
    for net, batch in WHOLE:
        if only not in net:
            continue
        job = job_of(net, batch, 0.0)
        row = [f"{net} x{batch}", mib(evaluate(job, "intra").peak_bytes)]
        for count in COUNTS:
            report = evaluate(job.with_slices(f"whole/{count}"), "intra")
            row.append(f"{mib(report.peak_bytes)} ({format_change(report.overhead)})")
        rows.append(row)
        print(" | ".join(row), file=sys.stderr, flush=True)
    yield from table(["net", "without", *(f"{count} slices" for count in COUNTS)], rows)


def least(only: str) -> Iterator[str]:
    yield "## Bytes below which no plan can go, MiB\n"
    rows = []
    for net, batch, cut in LEAST:
        if only in net:
            job = job_of(net, batch, 0.0)
            sliced = evaluate(job.with_slices(cut), "liveness")
            rows.append([f"{net} x{batch}", mib(evaluate(job, "liveness").bound_bytes), cut, mib(sliced.bound_bytes)])
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    yield from table(["net", "without slices", "slices", "with"], rows)


def batch_norms(only: str) -> Iterator[str]:
    """How far slices of the first layers lower the largest op."""
    yield "## Nets with BatchNorm: the largest op, MiB\n"
    rows = []
    for net, batch in WITH_BATCH_NORM:
        if only not in net:
            continue
        graph = job_of(net, batch, 0.0).whole
        norms = [
            op.node for op in graph.ops if op.kind == FORWARD and isinstance(op.record, (BatchNorm, BatchNormScale))
        ]
        largest = [largest_op(graph, node) for node in [0, *norms]]
        lower = next((n for n, nbytes in enumerate(largest) if nbytes < 0.9 * largest[0]), None)
        after = ["-", "-"] if lower is None else [f"{lower - 1}", mib(largest[lower])]
        rows.append([f"{net} x{batch}", mib(largest[0]), mib(largest[2]), *after])
        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    yield from table(
        ["net", "all ops", "from the second BatchNorm on", "BatchNorms in a region that lowers it", "to"], rows
    )


def largest_op(graph: Graph, node: int) -> int:
    """Bytes that the largest op touches, updates and the nodes from `node` on."""

    def touched(op: Op) -> int:
        saved = {o.out for o in op.overlays if o.over in graph.buffers}
        return aligned(op.workspace_bytes) + sum(
            aligned(graph.buffers[name].nbytes) for name in {*op.reads, *op.updates, *op.writes} - saved
        )

    return max(touched(op) for op in graph.ops if op.node >= node or op.kind == UPDATE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="also write the tables to a file")
    parser.add_argument("--only", default="", help="nets whose names have this in them")
    options = parser.parse_args()
    lines = [
        "# Batch slices: memory and predicted time",
        "",
        f"Made by `python tools/bench_slices.py` on {machine()}.  Device cuda in tf32 by the model of its costs, SGD "
        "with momentum; every schedule was checked, none was run.  Times are predicted; overheads are against the step "
        "without slices that keeps everything.",
        "",
        MODELLED,
        "",
        *least(options.only),
        *whole_steps(options.only),
        *under_budgets(options.only),
        *in_bands(options.only),
        *batch_norms(options.only),
        *norms_least(options.only),
        *norms_under_budgets(options.only),
    ]
    text = "\n".join(lines)
    print(text)
    if options.out:
        before = options.out.read_text() if options.out.exists() else ""
        _, heading, measured = before.partition(MEASURED)
        options.out.write_text(f"{text}\n{heading}{measured}" if heading else text)


if __name__ == "__main__":
    main()
