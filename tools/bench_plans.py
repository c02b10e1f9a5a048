"""Recomputes the plans of the tables in README.md and docs/ and compares them.  It only plans; nothing trains.

    python tools/bench_plans.py                                   every table; a line for each cell that got worse
    python tools/bench_plans.py docs/benchmarks/slices.md         the tables of some pages
    python tools/bench_plans.py --only resnet50 --print           rows with this text; prints their present values
    python tools/bench_plans.py --write                           writes the present plans into the pages
    python tools/bench_plans.py docs/benchmarks/recompute.md --graphs FOLDER     also tables of graph files

A table is planned if it follows a comment.  The settings of a row are the words of that comment and the cells of
columns named like a setting; a heading may change some of them for its own column:

    <!-- plans: device=cuda precision=tf32 link=45 -->

    | net | budget, MiB | slices=off | slices=auto | `hybrid` device=cpu |

setting    net            a folder below prototxt/, "x", and the batch
           device, precision, storage, strategy, slices, split-weights, ranks, gpu       as the options of `layermem
           plan`; "_" in the name of a GPU in a comment is a blank
           budget         MiB, or "%" of the bytes of strategy `caffe`
           link, network  GB/s each way between GPU and host, and between ranks; link=none offloads nothing
           problem        a placement problem in --graphs, CSV of id, lower, upper, size, as MiniMalloc has;
                          the number in its name is the capacity
           graph, reads   a graph file in --graphs, and the data that its backward functions read; "%" refers to all its
                          values and gradients, or to the peak of its order if the file is JSON
result     the name of a strategy: its least MiB, "+" MiB on the host, and the reduction against `caffe`
           `place, s`     wall seconds of the search for offsets within the capacity, never compared
           for a graph, the name of a family: recomputation in % of the cost of all functions
           a command of layermem, such as `layermem plan --budget 30%`: its wall seconds, never compared
           others: RESULTS.  A heading without a name is `overhead`

The cache of plans (layermem/planning/kept_plans.py) is not read.  Cells of other columns are not changed.  A smaller
number is better.  Exit code 1: some cell got worse.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from layermem import _native, api
from layermem.backends.base import get_device
from layermem.cli.examples import copy, read_examples
from layermem.graph.ops import FORWARD
from layermem.integrations.graph_files.node_link import read_node_link, run_sequence
from layermem.integrations.graph_files.node_order import plan_order
from layermem.integrations.graph_files.planner import FAMILIES, GraphPlan, GraphPlanner
from layermem.integrations.graph_files.text_format import read_graph
from layermem.planning.hints import Hints
from layermem.planning.job import Job
from layermem.planning.strategies import STRATEGIES
from layermem.report.plan_report import PlanReport, evaluate
from layermem.report.summary import slices_values
from layermem.schedule.ir import OFFLOAD
from layermem.utils.units import format_change

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMENT = re.compile(r"<!-- plans:(.*)-->")
DEFAULTS = {
    "device": "cpu",
    "gpu": "",
    "precision": "",
    "storage": "fp32",
    "strategy": "",
    "slices": "off",
    "split-weights": "",
    "budget": "",
    "link": "",
    "ranks": "1",
    "network": "",
    "reads": "inputs",
}
SETTINGS = {"net", "graph", "problem", *DEFAULTS}
NUMBER = re.compile(r"[+-]?[\d,]+(\.\d+)?")
NEITHER_BETTER = (
    "of copies",
    "place, s",
    "bound",
    "least, MiB",
    "base",
    "slices chosen",
    "split weights chosen",
    "run again",
    "peak, MiB",
    "host, MiB",
)
MIB = 2**20
PLACE_STEP_SECONDS = 120.0


def mib(nbytes: float) -> str:
    return f"{nbytes / MIB:,.0f}"


class StepRow:
    """The training step of one row; overheads are relative to `base`, by default the step itself."""

    def __init__(self, settings: Mapping[str, str], base: StepRow | None = None):
        self.settings, self.base = {**DEFAULTS, **settings}, base or self

    def other(self, **settings: str) -> StepRow:
        return StepRow({**self.settings, **settings}, self.base)

    @property
    def file(self) -> Path:
        """The net in prototxt/, where one without files is written first."""
        name = self.settings["net"].split(" x")[0]
        file = ROOT / "prototxt" / name / "train_val.prototxt"
        if not file.exists():
            copy(read_examples()[name], file.parent)
        return file

    @cached_property
    def job(self) -> Job:
        wanted = self.settings
        own = {"precision": wanted["precision"], "planned_gpu": wanted["gpu"].replace("_", " ")}
        job = api.job_of(
            self.file,
            device=get_device(wanted["device"], storage=wanted["storage"], **{k: v for k, v in own.items() if v}),
            batch=int(wanted["net"].split(" x")[1]),
            hints=Hints(host_budget_bytes=0) if wanted["link"] == "none" else Hints(),
            ranks=int(wanted["ranks"].replace(",", "")),
        )
        rates = job.costs.rates
        if wanted["link"] not in ("", "none"):
            rates = replace(rates, d2h=float(wanted["link"]) * 1e9, h2d=float(wanted["link"]) * 1e9)
        if wanted["network"]:
            rates = replace(rates, net=float(wanted["network"]) * 1e9)
        job = replace(job, costs=replace(job.costs, rates=rates))
        return job.with_slices(wanted["slices"], wanted["split-weights"] or None)

    @property
    def budget_bytes(self) -> int | None:
        text = self.settings["budget"].replace(",", "")
        if text.endswith("%"):
            return int(self.base.job.baseline_bytes * float(text[:-1]) / 100)
        return int(text) * MIB if text else None

    @cached_property
    def report(self) -> PlanReport:
        return evaluate(self.job, self.settings["strategy"] or None, self.budget_bytes)

    def minimum(self, strategy: str) -> str:
        """The smallest budget of `strategy`, such as "738 + 12,341 (-94.8 %)"."""
        if strategy == "caffe":
            return mib(self.job.baseline_bytes)
        program = evaluate(self.job, strategy, evaluate(self.job, strategy, 1).minimum_bytes).program
        host = f" + {mib(program.host_bytes)}" if program.host_bytes else ""
        return f"{mib(program.arena_bytes)}{host} ({100 * program.arena_bytes / self.job.baseline_bytes - 100:.1f} %)"

    def where_it_fits(self, text: Callable[[PlanReport], str]) -> str:
        return text(self.report) if self.report.feasible else "-"

    def overhead(self) -> str:
        if not self.report.feasible:
            return f"needs {mib(self.report.minimum_bytes)}"
        return format_change(self.report.seconds / self.base.job.baseline_seconds - 1)

    def of_relus(self) -> str:
        """The share of the bytes copied to the host that a ReLU computed; only such bytes have zeros to leave out."""
        train = self.report.program.train
        sources = [train.residencies[each.reads[0]].buffer for each in train.instructions if each.kind == OFFLOAD]
        copied = [train.graph.buffers[source] for source in sources]
        made = {b for op in train.graph.of_kind(FORWARD) if getattr(op.record, "relu", False) for b in op.writes}
        nbytes = sum(buffer.nbytes for buffer in copied)
        share = sum(buffer.nbytes for buffer in copied if buffer.name in made) / nbytes if nbytes else 0.0
        return f"{100 * share:.0f} % of {mib(nbytes)}"

    def bound(self) -> str:
        """Lower bound of the overhead of any plan within the budget."""
        if self.report.bound_bytes > (self.budget_bytes or self.report.peak_bytes):
            return "none fits"
        return self.where_it_fits(lambda it: format_change(it.bound_seconds / self.base.job.baseline_seconds - 1))

    def exposed(self) -> str:
        """Milliseconds that copies and communication add to the ops."""
        return self.where_it_fits(lambda it: f"{1e3 * (it.seconds - it.timeline.compute_seconds):,.1f}")

    def efficiency(self) -> str:
        """Efficiency of several ranks compared with one."""
        return f"{100 * self.other(ranks='1').report.seconds / self.report.seconds:.0f} %"

    def fragmentation(self) -> str:
        """The largest fragmentation of all strategies, without a budget and at their minimum, in % of the live
        bytes."""
        worst, of = 0.0, ""
        for strategy in STRATEGIES:
            report = evaluate(self.job, strategy)
            for program in (report.program, report.minimum_program):
                share = program.arena_bytes / program.max_live_bytes - 1
                worst, of = max((worst, of), (share, f" ({strategy})"))
        return f"{100 * worst:.3f} %{of}" if worst else "none"

    def command(self, words: str) -> str:
        """Wall seconds of a command; its exit code may report that nothing fits."""
        verb, *options = shlex.split(words)[1:]
        began = time.perf_counter()
        command = [sys.executable, "-m", "layermem", verb, "--net", str(self.file), *options]
        subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        return f"{time.perf_counter() - began:.2f}"

    def result(self, name: str) -> str | None:
        """The cell under a heading, or None if the heading names no result."""
        if name in STRATEGIES:
            return self.minimum(name)
        if name.startswith("layermem "):
            return self.command(name)
        return RESULTS[name](self) if name in RESULTS else None


RESULTS: dict[str, Callable[[StepRow], str]] = {
    "BVLC Caffe": lambda step: mib(step.job.bvlc_bytes),
    "ops, ms": lambda step: f"{1e3 * sum(map(step.job.costs.op, step.job.graphs[0].ops)):,.1f}",
    "time, ms": lambda step: step.where_it_fits(lambda it: f"{1e3 * it.seconds:,.1f}"),
    "overhead": StepRow.overhead,
    "bound": StepRow.bound,
    "peak, MiB": lambda step: step.where_it_fits(lambda it: mib(it.peak_bytes)),
    "host, MiB": lambda step: step.where_it_fits(lambda it: mib(it.program.host_bytes)),
    "least, MiB": lambda step: mib(step.report.bound_bytes),
    "run again": lambda step: step.where_it_fits(lambda it: str(it.recomputed_ops)),
    "base": lambda step: step.where_it_fits(lambda it: it.base),
    "slices chosen": lambda step: step.where_it_fits(lambda it: slices_values(it)["slices"] or "off"),
    "split weights chosen": lambda step: step.where_it_fits(lambda it: slices_values(it)["split_weights"] or "off"),
    "of copies": lambda step: step.where_it_fits(lambda _: step.of_relus()),
    "exposed, ms": StepRow.exposed,
    "efficiency": StepRow.efficiency,
    "fragmentation": StepRow.fragmentation,
}


class GraphStep:
    """The graph file of one row."""

    folder = Path()

    def __init__(self, settings: Mapping[str, str], base: GraphStep | None = None):
        self.settings = {**DEFAULTS, **settings}
        self.share = float(self.settings["budget"].rstrip(" %") or 0) / 100

    def other(self, **settings: str) -> GraphStep:
        return GraphStep({**self.settings, **settings})

    def plan(self, family: str) -> GraphPlan:
        planner = GraphPlanner(
            read_graph(self.folder / self.settings["graph"]), family, reads=self.settings["reads"], op_costs="authors"
        )
        return planner.plan(int(planner.values.total_bytes * self.share) or None)

    def of_order(self) -> str:
        """Recomputation of a sequence in the order of a file, evaluated with the measure of Moccasin's code."""
        graph = read_node_link(self.folder / self.settings["graph"])
        budget_bytes = int(graph.order_bytes * self.share)
        sequence = plan_order(graph, budget_bytes)
        if sequence is None:
            return "-"
        peak_bytes, cost = run_sequence(graph, sequence)
        assert peak_bytes <= budget_bytes, f"{graph.name} takes {peak_bytes:,} bytes of {budget_bytes:,}"
        return f"{100 * (cost / graph.total_cost - 1):.2f}"

    def result(self, name: str) -> str | None:
        if name == "order":
            return self.of_order()
        if name == "bound":
            plan = self.plan(FAMILIES[0])
            return f"{100 * plan.cost_bound / plan.cost_forward:.1f}"
        if name == "minimum, MB":
            return f"{self.plan(FAMILIES[0]).minimum_bytes / 1e6:.0f}"
        if name not in FAMILIES:
            return None
        plan = self.plan(name)
        return "-" if plan.cost_recomputed is None else f"{100 * plan.cost_recomputed / plan.cost_forward:.1f}"


class PlacementStep:
    """The placement problem of one row."""

    def __init__(self, settings: Mapping[str, str], base: PlacementStep | None = None):
        self.path = GraphStep.folder / settings["problem"]

    def result(self, name: str) -> str | None:
        """Seconds until every interval has an offset within the capacity, or "-" after PLACE_STEP_SECONDS."""
        if name != "place, s":
            return None
        begin, end, size = np.loadtxt(self.path, np.int64, delimiter=",", skiprows=1, usecols=(1, 2, 3)).T.copy()
        capacity = int(self.path.name.split(".")[1])
        placement = _native.place(begin, end, size, align=1, step_seconds=PLACE_STEP_SECONDS, target=capacity)
        offset = placement.offsets
        for i in range(len(size)):
            beside = (begin < end[i]) & (begin[i] < end) & (offset < offset[i] + size[i]) & (offset[i] < offset + size)
            assert beside.sum() == 1, f"interval {i} of {self.path} shares bytes with another one"
        return f"{placement.seconds:.3f}" if placement.height <= capacity else "-"


@dataclass
class Table:
    """A table of a page: `line` is the line of its headings, `settings` apply to all rows."""

    settings: dict[str, str]
    line: int
    headings: list[str]

    def cells_of(self, text: str) -> dict[str, str]:
        cells = [cell.strip() for cell in text.strip().strip("|").split("|")]
        return dict(zip(self.headings, cells, strict=True))

    def planned(self, cells: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Yield (heading, cell) of each result of a row."""
        named = {heading.split(",")[0]: cell.strip("`") for heading, cell in cells.items()}
        settings = self.settings | {name: cell for name, cell in named.items() if name in SETTINGS}
        kind = GraphStep if "graph" in settings else PlacementStep if "problem" in settings else StepRow
        step = kind(settings)
        for heading in self.headings:
            changes, name = changes_of(heading)
            changed = kind({**settings, **changes}, step) if changes else step
            if heading.split(",")[0] not in SETTINGS and (cell := changed.result(name)) is not None:
                yield heading, cell


def changes_of(heading: str) -> tuple[dict[str, str], str]:
    """The settings that a heading changes, and the result that it names: 'auto' for "`auto` device=cuda"."""
    changes = dict(re.findall(r"([\w-]+)=(\S+)", "" if "layermem " in heading else heading))
    name = heading.replace("`", "")
    for setting, value in changes.items():
        name = name.replace(f"{setting}={value}", "")
    return changes, name.strip() or "overhead"


def tables(lines: list[str]) -> Iterator[Table]:
    """Yield the tables that follow a comment."""
    settings: dict[str, str] | None = None
    for number, line in enumerate(lines):
        if comment := COMMENT.search(line):
            settings = dict(word.split("=", 1) for word in comment[1].split())
        elif line.startswith("|") and settings is not None:
            yield Table(settings, number, [cell.strip() for cell in line.strip().strip("|").split("|")])
            settings = None


@dataclass
class Comparison:
    """Counts of cells by their change."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, where: str, heading: str, before: str, now: str) -> None:
        if heading.startswith("`layermem ") or changes_of(heading)[1] in NEITHER_BETTER:
            return
        old, new = number_of(before), number_of(now)
        verdict = "equal" if new == old else "worse" if new > old else "better"
        self.counts[verdict] += 1
        if verdict == "worse":
            print(f"worse: {where}, {heading}: {now}, was {before}", flush=True)

    def __str__(self) -> str:
        return ", ".join(f"{self.counts[verdict]} {verdict}" for verdict in ("equal", "better", "worse"))


def number_of(cell: str) -> float:
    """The first number of a cell; infinite if nothing fits."""
    found = NUMBER.match(cell)
    return float(found[0].replace(",", "")) if found else float("inf")


def plan_page(page: Path, options: argparse.Namespace, comparison: Comparison) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    for table in tables(lines):
        if {"graph", "problem"} & {*table.headings} and options.graphs is None:
            continue
        for number in range(table.line + 2, len(lines)):
            if not lines[number].startswith("|"):
                break
            if options.only not in lines[number]:
                continue
            cells = table.cells_of(lines[number])
            for heading, cell in table.planned(cells):
                comparison.add(f"{page.name}:{number + 1} {lines[number][2:40]}", heading, cells[heading], cell)
                cells[heading] = cell
            lines[number] = f"| {' | '.join(cells.values())} |"
            if options.print:
                print(lines[number], flush=True)
            if options.write:
                page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, default=PAGES)
    parser.add_argument("--only", default="", metavar="TEXT", help="rows that have this text")
    parser.add_argument("--graphs", type=Path, metavar="FOLDER", help="folder of graph files")
    parser.add_argument("--print", action="store_true", help="print each row as it is now")
    parser.add_argument("--write", action="store_true", help="write what is now into the pages, after each row")
    options = parser.parse_args()
    os.environ["LAYERMEM_CACHE"] = os.devnull  # a folder that cannot be made
    GraphStep.folder = options.graphs or Path()
    comparison = Comparison()
    for page in options.pages:
        plan_page(page, options, comparison)
    print(comparison)
    return 1 if comparison.counts["worse"] else 0


if __name__ == "__main__":
    sys.exit(main())
