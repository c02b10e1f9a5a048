"""Fragmentation of the training step of every net in prototxt/ under every strategy.

    python tools/bench_fragmentation.py [--strategies hybrid,auto] [--out docs/benchmarks/placement.md] [NET ...]

Each strategy makes two plans: without a budget, and at its minimum.  Their residencies are placed within the default
time limit, with parameters and optimizer state at the bottom of the arena.  Nothing is run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench_strategies import machine, table

from layermem.api import build_net
from layermem.planning.job import Job
from layermem.planning.plan import Plan
from layermem.planning.registry import MINIMUM_MEMORY
from layermem.planning.strategies import STRATEGIES, get_strategy
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.schedule.lower import lower
from layermem.schedule.place import assign_offsets
from layermem.solver.jobs import StepOptions, net_job
from layermem.utils.units import format_bytes

PROTOTXT = Path(__file__).resolve().parent.parent / "prototxt"


@dataclass(frozen=True)
class Placement:
    net: str
    strategy: str
    which: str  # "free" or "minimum"
    blocks: int
    bound: int
    height: int
    seconds: float

    @property
    def is_fragmented(self) -> bool:
        return self.height > self.bound


def plans(job: Job, arena: ArenaPlanner, strategy: str) -> Iterator[tuple[str, Plan]]:
    """The strategy's plans, each once."""
    make = get_strategy(strategy).make
    free = make(job.graphs[0], job.costs, None, arena, job.hints)
    yield "free", free
    minimum = make(job.graphs[0], job.costs, MINIMUM_MEMORY, arena, job.hints)
    if minimum != free:
        yield "minimum", minimum


def place_plans(path: Path, strategies: list[str]) -> Iterator[Placement]:
    job = net_job(build_net(path), StepOptions(device="cpu")).with_host_budget("1TiB")
    name = path.parent.name + path.name.removesuffix("train_val.prototxt").rstrip("_")
    arena = ArenaPlanner(job.graphs, job.costs)
    for strategy in strategies:
        for which, plan in plans(job, arena, strategy):
            residencies = lower(arena.layouts[0], plan).residencies
            placed = assign_offsets(residencies, arena.persistent_offsets(plan))
            yield Placement(name, strategy, which, placed.blocks, placed.bound_bytes, placed.peak_bytes, placed.seconds)


def by_net(rows: list[Placement]) -> Iterator[str]:
    shown = []
    for net in dict.fromkeys(row.net for row in rows):
        mine = [row for row in rows if row.net == net]
        slowest = max(mine, key=lambda row: row.seconds)
        shown.append(
            [
                net,
                str(len(mine)),
                f"{min(r.blocks for r in mine):,} to {max(r.blocks for r in mine):,}",
                str(sum(not row.is_fragmented for row in mine)),
                f"{slowest.seconds:.2f} ({slowest.strategy}, {slowest.which})",
            ]
        )
    yield from table(["net", "plans", "blocks", "without fragmentation", "slowest, s"], shown)


def misses(rows: list[Placement]) -> Iterator[str]:
    missed = [row for row in rows if row.is_fragmented]
    yield "## Plans with fragmentation\n"
    if not missed:
        yield "None.\n"
        return
    shown = [
        [
            r.net,
            f"{r.strategy} ({r.which})",
            f"{r.blocks:,}",
            format_bytes(r.bound),
            format_bytes(r.height - r.bound),
            f"{r.height / r.bound - 1:.3%}",
            f"{r.seconds:.2f}",
        ]
        for r in missed
    ]
    yield from table(["net", "plan", "blocks", "live bytes", "fragmentation", "share", "seconds"], shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", help="folders below prototxt/ (all)")
    parser.add_argument("--strategies", default=",".join(STRATEGIES), help="names, commas between (all)")
    parser.add_argument("--out", type=Path, help="also write the tables to a file")
    options = parser.parse_args()
    nets = sorted(PROTOTXT.glob("*/*train_val.prototxt"))
    paths = [path for path in nets if not options.nets or path.parent.name in options.nets]
    rows: list[Placement] = []
    for path in paths:
        began = time.perf_counter()
        rows += place_plans(path, options.strategies.split(","))
        print(f"{path.parent.name} done in {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    reached = sum(not row.is_fragmented for row in rows)
    lines = [
        "# Placement: fragmentation of every plan",
        "",
        f"Made by `python tools/bench_fragmentation.py` on {machine()}.",
        "",
        f"{reached} of {len(rows)} plans are placed without fragmentation: the arena is as high as the peak live "
        f"bytes, which is a lower bound; the slowest took {max(row.seconds for row in rows):.2f} s.  A free plan is "
        "one made without a budget, a minimum one has the least memory.",
        "",
        *by_net(rows),
        *misses(rows),
    ]
    text = "\n".join(lines)
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
