"""train, test: run a solver inside a budget; score weights."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from layermem.cli.options import (
    Verbs,
    add_budget,
    add_device,
    add_verb,
    device_of,
    hints_of,
    strategies_text,
)
from layermem.errors import InputError

if TYPE_CHECKING:
    from layermem.backends.base import Device
    from layermem.report.plan_report import PlanReport
    from layermem.solver.events import Event
    from layermem.solver.scoring import Scoring
    from layermem.solver.solver import Solver

TRAIN_EXAMPLE = """\
  layermem train --solver prototxt/digits/solver.prototxt --budget 50%
  layermem train --solver prototxt/digits/solver.prototxt --snapshot out/digits_iter_500.solverstate
"""
TEST_EXAMPLE = """\
  layermem test --net prototxt/digits/train_val.prototxt --weights out/digits_iter_700.caffemodel --iterations 6
"""
INTERRUPTED = 130


def add_verbs(verbs: Verbs) -> None:
    train = add_verb(
        verbs, "train", "train a net inside a memory budget, as a solver says", TRAIN_EXAMPLE, more=strategies_text
    )
    train.add_argument("--solver", metavar="F", required=True, help="the solver, a prototxt file")
    _add_device(train)
    train.add_argument("--graph", action="store_true", help="on cuda: capture the iteration, and launch it as a whole")
    train.add_argument("--batch", metavar="N", type=int, help="batch size of the train net in place of its own")
    train.add_argument("--iterations", metavar="N", type=int, help="stop after so many instead of max_iter")
    start = train.add_argument_group("start")
    start.add_argument("--weights", metavar="F", help="weights to start from, by layer name; commas between files")
    start.add_argument("--snapshot", metavar="F", help="a .solverstate to go on from")
    start.add_argument("--seed", metavar="N", type=int, help="in place of the solver's random_seed")
    start.add_argument("--net-stage", metavar="S", action="append", default=[], help="a stage of the train net's rules")
    start.add_argument("--net-level", metavar="N", type=int, default=0, help="level of the train net's rules (0)")
    memory = train.add_argument_group("memory")
    add_budget(memory)
    memory.add_argument("--strategy", metavar="S", help="one of those below (auto under a budget, else liveness)")
    memory.add_argument("--load", metavar="P.json", help="a plan that `layermem plan --save` wrote")
    memory.add_argument("--costs", metavar="costs.csv", help="measured times, from `layermem time` (a model)")
    memory.add_argument("--spill", metavar="DIR", help="keep what is offloaded in a file there instead of in memory")
    stop = train.add_argument_group("signals")
    for name, says, usual in (("sigint", "Ctrl-C", "stop"), ("sighup", "the terminal's end", "snapshot")):
        stop.add_argument(
            f"--{name}-effect", choices=("stop", "snapshot", "none"), default=usual, help=f"what {says} does ({usual})"
        )
    train.set_defaults(run=run_train)

    test = add_verb(verbs, "test", "score weights on the TEST phase of a net", TEST_EXAMPLE)
    test.add_argument("--net", metavar="F", required=True, help="the net, a prototxt file")
    test.add_argument("--weights", metavar="F", required=True, help="weights, by layer name; commas between files")
    test.add_argument("--iterations", metavar="N", type=int, default=50, help="batches (50)")
    _add_device(test)
    test.add_argument("--batch", metavar="N", type=int, help="batch size in place of what the net says")
    test.add_argument("--budget", metavar="B", help="bytes of device memory: 2GiB, 512KiB or 50%%")
    test.add_argument("--net-stage", metavar="S", action="append", default=[], help="a stage of the net's rules")
    test.add_argument("--net-level", metavar="N", type=int, default=0, help="level of the net's rules (0)")
    test.set_defaults(run=run_test)


def _add_device(parser: argparse.ArgumentParser) -> None:
    add_device(parser)
    parser.add_argument("--threads", metavar="N", type=int, help="threads of the cpu device (all cores)")


# -- train -----------------------------------------------------------------------------------------------------


def run_train(arguments: argparse.Namespace) -> int:
    from layermem.report.summary import peaks, summary

    waiting: list[Event] = []
    with _solver(arguments, device_of(arguments), waiting) as solver:
        print(summary(_planned(solver)), end="", flush=True)
        _run(solver, arguments, waiting)
        print(peaks(solver.program.arena_bytes, solver.runner.measured_peak), flush=True)
        return INTERRUPTED if solver.interrupted else 0


def _solver(arguments: argparse.Namespace, device: Device, waiting: list[Event]) -> Solver:
    from layermem import api
    from layermem.planning.hints import hints_beside, joined
    from layermem.proto.read import read_solver
    from layermem.proto.solver_nets import train_net

    hints = joined(hints_of(arguments), hints_beside(train_net(read_solver(arguments.solver)).net.path))
    return api.Solver(
        arguments.solver, device=device, strategy=arguments.strategy, plan=arguments.load, budget=arguments.budget,
        hints=hints, costs=arguments.costs, batch=arguments.batch, spill=arguments.spill,
        weights=arguments.weights or (), snapshot=arguments.snapshot, iterations=arguments.iterations,
        seed=arguments.seed, level=arguments.net_level, stages=arguments.net_stage, log=waiting.append,
    )  # fmt: skip


def _planned(solver: Solver) -> PlanReport:
    """What the solver made, for the summary."""
    from layermem.api import title_of
    from layermem.report.plan_report import Job, PlanReport
    from layermem.solver.rules import rule_of

    program = solver.program
    histories = rule_of(solver.param).histories
    job = Job(title_of(solver.nets.train), solver.nets.all, tuple(solver.graphs), program.costs, histories)
    return PlanReport(job, program.train.plan.strategy, solver.budget, program)


def _run(solver: Solver, arguments: argparse.Namespace, waiting: list[Event]) -> None:
    """Iterate to the end, under a bar on a terminal and in Caffe's lines elsewhere."""
    from layermem.report.log import Log

    effects = {"sigint": arguments.sigint_effect, "sighup": arguments.sighup_effect}
    if not sys.stdout.isatty():
        solver.log = Log(sys.stdout)
        for event in waiting:
            solver.log(event)
        solver.solve(**effects)
        return
    from layermem.report.progress import Bar

    with Bar(solver.max_iter, solver.iteration) as bar:
        solver.log = bar
        for event in waiting:
            bar(event)
        solver.solve(**effects)


# -- test ------------------------------------------------------------------------------------------------------


def run_test(arguments: argparse.Namespace) -> int:
    from layermem import api
    from layermem.report.plan_report import evaluate
    from layermem.report.summary import peaks
    from layermem.solver.scoring import Scoring

    if arguments.iterations < 1:
        raise InputError(f"--iterations {arguments.iterations} scores nothing; give 1 or more")
    net = api.Net(arguments.net, "TEST", batch=arguments.batch, level=arguments.net_level, stages=arguments.net_stage)
    device = device_of(arguments)
    found = evaluate(api.job_of(net, device=device), None, arguments.budget)
    if found.refusal is not None:
        raise found.explain_refusal()
    with Scoring(net, found.program, device) as scoring:
        for name in scoring.load(arguments.weights.split(",")):
            print(f"layer '{name}' is in no weight file and keeps what its filler gave it")
        for line in _scored(scoring, arguments.iterations):
            print(line, flush=True)
        print(peaks(found.peak_bytes, scoring.runner.measured_peak))
    return 0


def _scored(scoring: Scoring, batches: int) -> Iterator[str]:
    """A line for each batch and value, then the means, as `caffe test` prints them."""
    from layermem.report.log import number
    from layermem.solver.scoring import outputs_of

    weights = {output.name: output.weight for output in outputs_of(scoring.net)}
    for batch, values in scoring.run(batches):
        for name, value in values.items():
            yield from (f"Batch {batch}, {name} = {number(each)}" for each in value.ravel())
    means = scoring.means
    if any(weights.values()):
        yield f"Loss: {number(sum(weights[name] * float(value.sum()) for name, value in means.items()))}"
    for name, value in means.items():
        for each in value.ravel():
            share = f" (* {number(weights[name])} = {number(weights[name] * each)} loss)" if weights[name] else ""
            yield f"{name} = {number(each)}{share}"
