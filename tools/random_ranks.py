"""Trains random nets and solvers on random numbers of ranks, compared bit by bit with one rank.

    python tools/random_ranks.py [--seconds 60 | --count N] [--seed S] [--only N]

A net of tools/campaign/net_grammar.py gets a random solver whose iterations have 2 to 6 micro-batches.  One rank trains
it under strategy `caffe`; then several do, as threads whose messages arrive late and in random order, each rank with
its own strategy and budget, some in slices of the batch, some from a snapshot of another number of ranks.

findings   snapshots or losses whose bits differ from those of one rank
           a measured peak of a rank that differs from the predicted one
           any exception but a refusal of the net, or of ranks for it; a run that takes more than five minutes
"""

from __future__ import annotations

import argparse
import random
import re
import struct
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import tools.campaign.native_build  # noqa: F401  before layermem._native
from layermem._native import cpu
from layermem.backends.base import STORAGES, Device
from layermem.backends.cpu import CpuDevice
from layermem.backends.reference import ReferenceDevice
from layermem.distributed.loopback import Loopback, run_ranks
from layermem.errors import DivergenceError, InputError
from layermem.interactive.solver import Solver
from layermem.planning.job import OFF
from layermem.planning.strategies import STRATEGIES
from layermem.proto.read import SolverFile, read_solver_text
from layermem.report.events import Event, Stepped
from layermem.report.plan_report import evaluate
from layermem.solver.build import build_nets
from layermem.solver.jobs import StepOptions, solver_job
from layermem.solver.sharing import ranks_of
from tools.campaign.session import Campaign, add_arguments, time_limit
from tools.random_nets import DIVERGED, LIMIT, Different, loss_scale_for, solver_text, written_bytes

RUNS = 3  # runs of a net besides the one on one rank
MICRO_BATCHES = (2, 3, 4, 4, 6)
QUICK = sorted(STRATEGIES.keys() - {"recompute-exact"})
HOST_BYTES = 1 << 40
WITHOUT_RANKS = "ranks|rank "  # pattern of the refusal of a net that ranks cannot share


@dataclass(frozen=True)
class RankRun:
    """Settings of one rank.  budget: position between the minimum and the bytes without a budget, from 0 to 1; None is
    no budget."""

    strategy: str = "caffe"
    budget: float | None = None
    poison: bool = False
    sliced: bool = False

    @staticmethod
    def random(rng: random.Random) -> RankRun:
        share = rng.choice((None, 0.0, rng.random()))
        return RankRun(rng.choice(QUICK), share, rng.random() < 0.3, rng.random() < 0.3)


def of_iteration(file: Path, iteration: int) -> list[str]:
    """The bytes of weights and optimizer state of an iteration, without the file with the number of ranks."""
    found = sorted(file.parent.glob(f"{file.name}_iter_{iteration}.*"))
    return [path.read_bytes().hex() for path in found if "json" not in path.suffixes[-1]]


def slices_for(run: RankRun, solver: SolverFile, device: Device) -> str:
    """The whole step in two slices, if possible."""
    try:
        solver_job(solver, build_nets(solver), StepOptions(device=device)).with_slices("whole/2")
    except InputError:
        return OFF
    return "whole/2" if run.sliced else OFF


def train_rank(
    text: str, run: RankRun, device: Device, folder: Path, end: int, snapshot: str | None, transport: Loopback | None
) -> tuple[list[float], str | None]:
    """Train one rank; return its losses and the snapshot at the end."""
    file = read_solver_text(f'snapshot_prefix: "{folder}/run"\n{text}', str(folder / "solver.prototxt"))
    slices, budget, losses = slices_for(run, file, device), None, []

    def log(event: Event) -> None:
        if isinstance(event, Stepped):
            losses.append(event.loss)

    if run.budget is not None:
        ranks = ranks_of(file, 1, 0) if transport is None else ranks_of(file, transport.size, transport.rank)
        job = (
            solver_job(file, build_nets(file), StepOptions(device=device), ranks)
            .with_host_budget(HOST_BYTES)
            .with_slices(slices)
        )
        report = evaluate(job, run.strategy)
        budget = report.minimum_bytes + int((report.peak_bytes - report.minimum_bytes) * run.budget)
    with Solver(
        file,
        device=device,
        strategy=run.strategy,
        budget=budget,
        poison=run.poison,
        snapshot=snapshot,
        iterations=end,
        log=log,
        slices=slices,
        host_budget=HOST_BYTES,
        transport=transport,
        loss_scale=loss_scale_for(text, device),
    ) as solver:
        solver.step(end - solver.iteration)
        measured, predicted = solver.runner.measured_peak_bytes, solver.program.arena_bytes
        train_schedules = len(solver.program.schedules) - len(solver.nets.tests)
        if not written_bytes(solver.program.schedules[:train_schedules]) <= measured <= predicted:
            raise Different(f"measured {measured:,} bytes where {predicted:,} were predicted")
        return losses, solver.snapshot()


def train_ranks(
    text: str, runs: list[RankRun], device: Device, folder: Path, ends: list[int], seed: int
) -> tuple[str, ...]:
    """Train up to each of `ends` in turn, the last time with `runs`; return the bytes of the last snapshot and the
    losses."""
    snapshot: str | None = None
    losses: list[float] = []
    for number, end in enumerate(ends):
        size = len(runs) if number == len(ends) - 1 else 1

        def of_rank(transport: Loopback, end: int = end, snapshot: str | None = snapshot) -> tuple[list[float], object]:
            run = runs[transport.rank]
            return train_rank(text, run, device, folder, end, snapshot, transport)

        try:
            if size == 1:
                results = [train_rank(text, runs[0], device, folder, end, snapshot, None)]
            else:
                results = run_ranks(size, of_rank, seed=seed)
        except DivergenceError:
            return DIVERGED
        losses += results[0][0]  # losses of rank 0, which logs
        snapshot = next((name for _, name in results if isinstance(name, str)), None)
    content = of_iteration(folder / "run", ends[-1])
    for path in folder.glob("run_iter_*"):
        path.unlink()
    return struct.pack(f"{len(losses)}d", *losses).hex(), *content


def try_net(campaign: Campaign, index: int, rng: random.Random, folder: Path) -> None:
    iterations, micro_batches = rng.randint(2, 3), rng.choice(MICRO_BATCHES)
    text = re.sub(r"iter_size: \d+\n?", "", solver_text(rng, iterations))
    text = f"iter_size: {micro_batches}\n{text}"
    make = ReferenceDevice if rng.random() < 0.15 else CpuDevice
    device = make(storage=rng.choice(STORAGES))
    if isinstance(device, CpuDevice):
        cpu.set_isa(rng.choice(cpu.available_isas()))
    sizes = [size for size in range(1, micro_batches + 1) if micro_batches % size == 0]
    expected: tuple[str, ...] | None = None
    campaign.count("nets")
    for number in range(RUNS + 1):
        size = rng.choice(sizes[1:] * 3 + sizes[:1]) if number else 1
        runs = [RankRun.random(rng) if number else RankRun() for _ in range(size)]
        ends = [rng.randrange(1, iterations), iterations] if number and rng.random() < 0.25 else [iterations]
        try:
            with time_limit(LIMIT):
                bits = train_ranks(text, runs, device, folder, ends, rng.randrange(2**31))
            if expected is None:
                expected = bits
            if bits != expected:
                raise Different("ends in other bits than one rank")
            campaign.count("diverged runs" if bits == DIVERGED else "runs")
            campaign.count("ranks", size)
        except InputError as error:
            if expected is not None and not re.search(WITHOUT_RANKS, str(error)):
                campaign.report(index, f"{device.arithmetic}: {runs}: {error}", {"solver.prototxt": text})
            campaign.count("refused nets")
            return
        except Exception as error:
            what = f"{device.arithmetic}: {ends} {runs}: {type(error).__name__}: {error}"
            campaign.report(index, what, {"solver.prototxt": text})
        if expected is None:
            return


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    campaign = Campaign.from_arguments("random_ranks", parser.parse_args())
    for index, rng in campaign.inputs():
        campaign.note(index)
        with tempfile.TemporaryDirectory(prefix="layermem-") as folder:
            try_net(campaign, index, rng, Path(folder))
    return campaign.finish()


if __name__ == "__main__":
    sys.exit(main())
