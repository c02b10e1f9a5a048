"""Is any plan worse than the tables of docs/benchmarks say?  Plans only; nothing runs.

python tools/check_benchmarks.py                   tables of strategies.md with a column per strategy: minimum memory;
                                                   "In a net of layers" of recompute.md: overheads
python tools/check_benchmarks.py --graphs FOLDER   graph files (cg_*.txt): the tables of recompute.md by reads of a
                                                   backward, and of nested plans
--nets resnet50,unet   some nets             --strategies recompute,hybrid   some strategies

Prints a line per cell that got worse, beyond its rounding, and how many are equal, better and worse.  Tables are
planned as their captions say: on device cuda where they name it, without host memory where nothing is offloaded.
The exit code is 1 if any cell got worse.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from layermem.errors import BudgetError
from layermem.planning.costs import model_costs
from layermem.planning.graph_files.planner import GraphPlanner
from layermem.planning.graph_files.text_format import read_graph
from layermem.planning.hints import Hints
from layermem.planning.job import Job
from layermem.planning.pipeline import compile
from layermem.planning.registry import STRATEGIES
from layermem.planning.strategies import load_strategies
from layermem.report.plan_report import evaluate
from tools.bench_strategies import NO_HOST, job_of

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "docs" / "benchmarks"
Rows = list[dict[str, str]]


@dataclass
class Tally:
    counts: Counter[str]

    def compare(self, what: str, stated: str, now: float | None) -> None:
        """`stated` as in the table, "-" for what does not fit; None now: it does not fit."""
        number = re.match(r"[\d,]+(\.\d+)?", stated.strip())
        if number is None:
            verdict = "better" if now is not None else "equal"
        else:
            before, slack = float(number[0].replace(",", "")), 0.05001 if number[1] else 0.5001
            far = now is None or abs(now - before) > slack
            verdict = ("worse" if now is None or now > before else "better") if far else "equal"
        self.counts[verdict] += 1
        if verdict == "worse":
            print(f"worse: {what}: {'does not fit' if now is None else f'{now:.1f}'}, was {stated}", flush=True)


def tables(path: Path) -> Iterator[tuple[str, Rows]]:
    """(text above it since the last one, rows by column) of each table; an empty first cell repeats the one above."""
    above: list[str] = []
    lines = [*path.read_text().splitlines(), ""]
    for i, line in enumerate(lines):
        if not line.startswith("|"):
            above.append(line)
        elif not lines[i - 1].startswith("|"):
            head = [cell.strip(" `") for cell in line.strip("|").split("|")]
            rows: Rows = []
            for row in lines[i + 2 :]:
                if not row.startswith("|"):
                    break
                cells = [cell.strip() for cell in row[1:].split("|")]
                cells[0] = cells[0] or rows[-1][head[0]]
                rows.append(dict(zip(head, cells)))
            yield "\n".join(above), rows
            above = []


def minimum_bytes(job: Job, strategy: str) -> int:
    return evaluate(job, strategy, 1).minimum_bytes


def check_minima(tally: Tally, wanted: argparse.Namespace) -> None:
    known = set(STRATEGIES) - {"caffe"}
    for text, rows in tables(BENCHMARKS / "strategies.md"):
        device = "cuda" if "device cuda" in text else "cpu"
        hints = NO_HOST if "Nothing is offloaded" in text else Hints()
        for row in rows:
            net = re.fullmatch(r"(\w+) x(\d+)", row.get("net", ""))
            names = [name for name in row if name in known and name in wanted.strategies]
            if net is None or net[1] not in wanted.nets or not names:
                continue
            job = job_of(net[1], int(net[2]), device, hints)
            for name in names:
                now = minimum_bytes(job, name) / 2**20
                tally.compare(f"{row['net']} {name} on {device}, MiB at least", row[name], now)


def check_layers(tally: Tally, wanted: argparse.Namespace) -> None:
    for text, rows in tables(BENCHMARKS / "recompute.md"):
        for row in rows if "## In a net of layers" in text else ():
            name, batch = re.sub(r"[-\s]", "", row["net, batch"]).lower().split(",")
            strategy, first = row["strategy"], row["minimum"]
            if name not in wanted.nets or strategy not in wanted.strategies or not first.endswith("%"):
                continue
            job = job_of(name, int(batch), "cpu", NO_HOST)
            graph, caffe_bytes = job.graphs[0], job.baseline_bytes
            least = minimum_bytes(job, strategy)
            what = f"{name} x{batch} {strategy}"
            tally.compare(f"{what}, minimum in % of caffe", first, 100 * least / caffe_bytes)
            seconds = sum(model_costs("cpu").op(op) for op in graph.ops)
            for share in (column for column in row if re.fullmatch(r"\d+ %", column)):
                try:
                    budget_bytes = caffe_bytes * int(share[:-2]) // 100
                    program = compile([graph], strategy=strategy, budget_bytes=budget_bytes, hints=NO_HOST)
                    now = 100 * (program.seconds / seconds - 1)
                except BudgetError:
                    now = None
                tally.compare(f"{what} at {share}, overhead", row[share], now)


def check_graphs(tally: Tally, wanted: argparse.Namespace) -> None:
    for text, rows in tables(BENCHMARKS / "recompute.md"):
        for row in rows:
            net = row.get("net", "")
            if net not in wanted.nets and wanted.nets != wanted.every:
                continue
            if "reads" in row:
                planner = GraphPlanner(read_graph(wanted.graphs / f"cg_{net}.txt"), reads=row["reads"])
                least = planner.least().model_peak_bytes / 1e6
                tally.compare(f"{net} reads {row['reads']}, minimum MB", row["minimum MB"], least)
                for share in (column for column in row if column.endswith(" %")):
                    _check_cost(tally, planner, net, share, row[share])
            elif "nested" in row and "budget" in row:
                reads = "file" if "the reads of the file" in text else "inputs"
                planner = GraphPlanner(read_graph(wanted.graphs / f"cg_{net}.txt"), "nested", reads=reads)
                _check_cost(tally, planner, f"{net} nested, reads {reads}", row["budget"], row["nested"])


def _check_cost(tally: Tally, planner: GraphPlanner, what: str, share: str, stated: str) -> None:
    plan = planner.plan(int(planner.values.total_bytes * float(share[:-2]) / 100))
    cost = plan.cost_recomputed
    tally.compare(f"{what} at {share}", stated, None if cost is None else 100 * cost / plan.cost_forward)


def main() -> int:
    load_strategies()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = {path.parent.name for path in (ROOT / "prototxt").glob("*/train_val.prototxt")}
    parser.add_argument("--graphs", type=Path)
    parser.add_argument("--nets", type=lambda text: set(text.split(",")), default=every)
    parser.add_argument("--strategies", type=lambda text: set(text.split(",")), default=set(STRATEGIES))
    wanted = parser.parse_args()
    wanted.every = every
    begin, tally = time.monotonic(), Tally(Counter())
    for check in (check_graphs,) if wanted.graphs else (check_layers, check_minima):
        check(tally, wanted)
    counts = ", ".join(f"{tally.counts[verdict]} {verdict}" for verdict in ("equal", "better", "worse"))
    print(f"{counts}; {time.monotonic() - begin:.0f} s")
    return 1 if tally.counts["worse"] else 0


if __name__ == "__main__":
    sys.exit(main())
