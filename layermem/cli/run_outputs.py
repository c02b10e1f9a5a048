"""Output files of `train` besides snapshots: the log, event files of TensorBoard, a plot of the curves, a trace."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING

from layermem.cli.options import print_warnings
from layermem.cli.run_job import job_record
from layermem.errors import DivergenceError, InputError, LayermemError
from layermem.utils.files import check_distinct, check_name, check_output, write_atomically
from layermem.utils.text import LABEL_WIDTH, printable

if TYPE_CHECKING:
    from layermem.cli.options import Options
    from layermem.interactive.solver import Solver
    from layermem.report.events import Event, Saved
    from layermem.report.records import Record
    from layermem.report.run_log import LogFile
    from layermem.solver.snapshot import SavedBest

OPTIONS = ("log", "tensorboard", "plot")


def add_run_outputs(parser: Options) -> None:
    parser.add_argument(
        "--log", metavar="RUN", help="append a record of each event to RUN.jsonl or RUN.csv (`layermem docs logs`)"
    )
    parser.add_argument(
        "--log-every",
        metavar="N",
        type=int,
        help="record each N-th iteration (default: display of the solver, or each one without it)",
    )
    parser.add_argument("--tensorboard", metavar="DIR", help="write event files for TensorBoard to DIR")
    parser.add_argument(
        "--plot", metavar="OUT", help="plot losses and accuracies at the end: OUT.png, .svg, .pdf or .html"
    )
    parser.add_argument(
        "--trace",
        metavar="OUT.json",
        help="measure each op; write the last iteration as a trace, for ui.perfetto.dev, and print a table of the ops",
    )


def check_run_outputs(arguments: argparse.Namespace) -> None:
    """Raise InputError, before any work, for outputs that cannot be written."""
    if arguments.log_every is not None and arguments.log_every < 1:
        raise InputError(f"--log-every {arguments.log_every} is too few; give 1 or more")
    if arguments.log_every is not None and not any(getattr(arguments, name) for name in OPTIONS):
        raise InputError("--log-every has no effect without --log, --tensorboard or --plot; give one of them")
    check_distinct(arguments.log, arguments.plot, arguments.trace, arguments.save_costs)
    if arguments.log:
        from layermem.report.run_log import check_log

        check_log(arguments.log)
    if arguments.tensorboard:
        from layermem.report.tensorboard import check_tensorboard

        check_tensorboard(arguments.tensorboard)
    if arguments.plot:
        from layermem.integrations.page.timeline import check_plot

        check_plot(arguments.plot)
    check_output(arguments.trace, arguments.save_costs)
    check_name(arguments.trace, (".json",), "a trace")


class RunOutputs:
    """A context around a run, whose events go to `record`; after it the files are complete, and `plot` may follow.

    A file that can no longer be written stops the run after the iteration, as a signal does, and `check` raises its
    error.
    """

    def __init__(self, arguments: argparse.Namespace, solver: Solver):
        from layermem.report.records import Recorder

        self.arguments, self.solver = arguments, solver
        self._saved: Saved | None = None  # the last snapshot of this run
        self._records: list[Record] = []  # for the plot
        self._fault: InputError | None = None  # of the first file that could not be written
        self._log: LogFile | None = None
        self._stack = ExitStack()
        self._sinks = [*self._files(), *([self._records.append] if arguments.plot else [])]
        self._recorder = Recorder(self._write, every=arguments.log_every or solver.param.display or 1)

    def record(self, event: Event) -> None:
        from layermem.report.events import Saved

        if isinstance(event, Saved):
            self._saved = event
        if self._sinks:
            try:
                self._recorder(event)
            except InputError as error:
                self.stop(error)

    def stop(self, error: InputError) -> None:
        """Stop the run for the error of an output."""
        self._fault = self._fault or error
        self.solver.request("stop")

    def check(self) -> None:
        """Raise the error of a file that could not be written."""
        if self._fault is not None:
            raise self._fault

    def __enter__(self) -> RunOutputs:
        solver, arguments = self.solver, self.arguments
        if not self._sinks:
            return self
        self._recorder.start(
            solver.report,
            solver_file=str(solver.file.path),
            seed=solver.seed,
            iteration=solver.iteration,
            max_iter=solver.max_iter,
            resumed_from=solver.resumed_from,
            job=job_record(arguments, solver.job.costs.spill),
            loss_weights={_name(net): dict(outputs) for net, outputs in _nets(solver)},
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._sinks:
            return
        print_warnings(self._lost(), of_loss=True)
        with self._stack, suppress(*([InputError] if error else [])):  # the error of the run takes precedence
            self._recorder.end(
                _status(self.solver, error),
                message=str(error) if isinstance(error, LayermemError) else None,
                predicted_peak_bytes=self.solver.program.arena_bytes,
                measured_peak_bytes=self.solver.runner.measured_peak_bytes,
                max_resident_bytes=_resident_bytes(),
            )
        if isinstance(error, DivergenceError):
            self.plot()

    def _lost(self) -> Iterator[str]:
        """Yield a sentence for each output that was taken away while the run wrote to it."""
        what = "was removed, moved or replaced while the run wrote to it; its records are not there"
        if self._log is not None and self._log.is_lost:
            yield f"{self.arguments.log} {what}"
        if self.arguments.tensorboard and not os.path.isdir(self.arguments.tensorboard):
            yield f"{self.arguments.tensorboard} {what}"

    def _write(self, record: Record) -> None:
        for sink in [*self._sinks]:
            try:
                sink(record)
            except InputError:
                self._sinks.remove(sink)
                raise

    def _files(self) -> list[Callable[[Record], None]]:
        sinks: list[Callable[[Record], None]] = []
        if self.arguments.log:
            from layermem.report.run_log import open_log, output_column

            columns = [output_column(net, name) for net, outputs in _nets(self.solver) for name, _ in outputs]
            self._log = self._stack.enter_context(open_log(self.arguments.log, columns))
            sinks.append(self._log)
        if self.arguments.tensorboard:
            from layermem.report.tensorboard import EventFiles

            files = EventFiles(self.arguments.tensorboard)
            self._stack.callback(files.close)
            sinks.append(files)
        return sinks

    def closing_lines(self) -> Iterator[str]:
        """Yield where the weights of the run are, and the command that goes on from there, on a line of its own."""
        best, criterion = self._best(), self.solver.best.criterion
        if best is not None and criterion is not None:
            what = f"{best['model']}  (iteration {best['iteration']}, {criterion.output} = {best['value']:g})"
            yield printable(f"{'best weights':<{LABEL_WIDTH}}{what}")
        if self._saved is None:
            return
        yield printable(f"{'weights':<{LABEL_WIDTH}}{self._saved.model}")
        label, words = ("resume with", self._resume()) if self.solver.interrupted else ("test with", self._test())
        if words:
            yield f"{label:<{LABEL_WIDTH}}{printable(shlex.join(['layermem', *words]))}"

    def _best(self) -> SavedBest | None:
        """Return the best weights, if this run keeps them."""
        return self.solver.progress.best if self.solver.best.criterion is not None else None

    def _resume(self) -> list[str]:
        assert self._saved is not None
        words = list(self.arguments.words)
        return words if self.arguments.restart else [*words, "--snapshot", self._saved.state]

    def _test(self) -> list[str]:
        """Return the words of `layermem test` for the first test net; none without a file of one, or on noise."""
        nets, saved = self.solver.nets, self._saved
        if saved is None or not nets.tests or self.arguments.data is not None:
            return []
        if nets.tests[0].path == str(self.solver.file.path):  # a net within the solver
            return []
        options = nets.tests[0].options
        best = self._best()
        words = ["test", "--net", str(nets.tests[0].path), "--weights", saved.model if best is None else best["model"]]
        words += ["--iterations", str(nets.test_iterations[0])]
        words += ["--level", str(options.level)] if options.level else []
        words += [word for stage in options.stages for word in ("--stage", stage)]
        return [*words, *(["--allow-python"] if options.allow_python else [])]

    def plot(self) -> None:
        """Write the plot of --plot.  With a log, curves begin where the runs that it resumes began."""
        if not self.arguments.plot:
            return
        from layermem.integrations.page.curves import draw_curves
        from layermem.report.read_log import last_training, read_records

        records = read_records(self.arguments.log) if self.arguments.log else self._records
        draw_curves(last_training(records), self.arguments.plot)

    def trace(self) -> None:
        """Write the trace of --trace, of the last iteration, and print what each kind of op takes."""
        if not self.arguments.trace:
            return
        from layermem.report.step_table import print_step_table
        from layermem.report.trace import trace_text

        runner = self.solver.runner
        first, *_ = times = runner.times[: len(runner.times) - len(self.solver.nets.tests)]
        if first.runs:
            write_atomically(self.arguments.trace, trace_text(self.solver.report, first.last).encode())
            means = [(schedule, each.mean) for schedule, each in zip(runner.program.schedules, times)]
            print_step_table(means, sum(each.mean_step for each in times), max(1, first.runs - 1))


def _nets(solver: Solver) -> list[tuple[int | None, list[tuple[str, float]]]]:
    """Return the outputs of every net with their loss weights; test nets have numbers."""
    from layermem.solver.build import reported

    outputs = [[(each.name, each.weight) for each in reported(net) if each.output] for net in solver.nets.all]
    return [*zip((None, *range(len(solver.nets.tests))), outputs)]


def _name(net: int | None) -> str:
    return "train" if net is None else f"test {net}"


def _status(solver: Solver, error: BaseException | None) -> str:
    if error is not None:
        return "diverged" if isinstance(error, DivergenceError) else "failed"
    return "stopped" if solver.interrupted else "done"


def _resident_bytes() -> int | None:
    from layermem.solver.process_memory import max_resident_bytes

    return max_resident_bytes() or None
