"""Plans the run that `watch` follows, in a process of the lowest priority.

    watch     serves the page, reads the log                 the files of the run
      |  start record -->  process: plan, then strategies  <--
      |  <-- sections, progress, the reason for an end

A separate process does not delay the answers of the server, can change to the working folder of the run, and leaves the
processors to the training: its nice value, also for the group of its session (sched(7), autogroup), is 5 for the plan,
which takes seconds and is shown first, and 19 for the strategies.  It ends with `watch`.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from layermem.cli.run_job import differences, plan_key, plan_run
from layermem.errors import LayermemError
from layermem.utils.text import wrap

if TYPE_CHECKING:
    from layermem.integrations.page.planned import PlannedPage
    from layermem.report.plan_report import PlanReport
    from layermem.report.records import Record

NICE_OF_PLAN, NICEST = 5, 19
AUTOGROUP = "/proc/self/autogroup"
REMEDY = "--solver F or --net F, with --budget B, names what to show instead"


class Planner:
    """A context that sends the sections of the newest run to `planned`; `arguments` are those of watch."""

    def __init__(self, arguments: argparse.Namespace, planned: PlannedPage):
        self.arguments, self.planned = arguments, planned
        self._options = {name: value for name, value in vars(arguments).items() if name != "run"}
        self._own_job = bool(arguments.net or arguments.solver)
        self._key: object = None
        self._process: multiprocessing.process.BaseProcess | None = None

    def follow(self, start: Record) -> None:
        """Plan the run of the record `start`, unless it is already planned."""
        key = plan_key(start)
        if key == self._key:
            return
        self._key = key
        plan = self.planned.begin()  # late messages of the previous process are dropped
        self._stop()
        context = multiprocessing.get_context("spawn")
        receiver, sender = context.Pipe(duplex=False)
        words = start, self._options, gc.get_threshold(), sender
        self._process = context.Process(target=work, args=words, name="layermem-plan", daemon=True)
        self._process.start()
        sender.close()  # this end, so that the end of the process closes the pipe
        self._receiver = threading.Thread(target=self._receive, args=(plan, receiver), daemon=True)
        self._receiver.start()

    def _receive(self, plan: int, receiver: Connection) -> None:
        """Pass messages of the process to `planned` until the process ends."""
        planned, ended = self.planned, False
        with receiver, contextlib.suppress(EOFError, OSError):
            while not ended:
                kind, *values = receiver.recv()
                if kind == "progress":
                    planned.advance(plan, *values)
                elif kind == "note":
                    planned.note(plan, *values)
                elif kind == "failed":
                    self._fail(plan, *values)
                elif kind != "end":
                    planned.add(plan, kind, *values)
                ended = kind in ("end", "failed")
        if not ended and plan == planned.state()[1]["plan"] and not self._stopping:
            self._fail(plan, "the process that plans the run has ended early, perhaps for want of memory")

    def _fail(self, plan: int, reason: str) -> None:
        what = (
            reason
            if self._own_job
            else f"{self.arguments.log}: the plan of its run cannot be shown: {reason}; {REMEDY}"
        )
        self.planned.fail(plan, what)
        print(wrap(f"layermem: {what}"), file=sys.stderr, flush=True)

    def __enter__(self) -> Planner:
        self._stopping = False
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping = True
        self._stop()

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._receiver.join()  # wait for its output


# -- the process -----------------------------------------------------------------------------------------------


def work(start: Record, options: Mapping[str, Any], thresholds: tuple[int, int, int], sender: Connection) -> None:
    """Run the process: plan, and send (kind, values) for each section, step, note, and the end."""
    _prepare(thresholds)
    try:
        for kind, content in sections(start, options, sender):
            sender.send((kind, content))
        sender.send(("end",))
    except LayermemError as error:
        sender.send(("failed", error.lines[0]))
    except BrokenPipeError:
        return  # `watch` has ended


def sections(start: Record, options: Mapping[str, Any], sender: Connection) -> Any:
    """Yield (name, JSON or text) of each section and note; send progress at the same time."""
    from layermem.integrations.page.data import plan_page
    from layermem.integrations.page.strategies import choose_points, choose_strategies, strategies_page

    report = _plan(start, options)
    for sentence in differences(start, report):
        yield "note", sentence
    yield "plan", _json(plan_page(report))
    _be_nice(NICEST)
    names = choose_strategies(report.job, options["strategies"])
    points = choose_points(report.job, options["points"])

    def progress(doing: str, done: int) -> None:
        sender.send(("progress", doing, done, len(names)))

    yield "strategies", _json(strategies_page(report, names, points, progress))


def _plan(start: Record, options: Mapping[str, Any]) -> PlanReport:
    from layermem.cli.options import job_of
    from layermem.report.plan_report import evaluate

    if not (options["net"] or options["solver"]):
        report = plan_run(start, allow_python=options["allow_python"])
    else:
        arguments = argparse.Namespace(**options)
        report = evaluate(job_of(arguments), arguments.strategy, arguments.budget)
    report.feasible_program()
    return report


def _json(values: Mapping[str, object]) -> bytes:
    return json.dumps(values, separators=(",", ":"), allow_nan=False).encode()


def _prepare(thresholds: tuple[int, int, int]) -> None:
    """Set a low priority, ignore signals of the terminal, and end with the parent."""
    gc.set_threshold(*thresholds)
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _be_nice(NICE_OF_PLAN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _be_nice(value: int) -> None:
    """Set the nice value of this process and of the group of its session."""
    os.nice(value - os.nice(0))
    with contextlib.suppress(OSError), open(AUTOGROUP, "w") as file:  # a kernel without groups
        file.write(str(value))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
