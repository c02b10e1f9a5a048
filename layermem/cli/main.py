"""The `layermem` command: its verbs, and its exit codes.

    0 done   2 the input is wrong   3 no plan fits the budget; `fit`: no strategy fits at any size
    4 the device failed   5 training diverged   130 interrupted   143 ended by SIGTERM

Every error that a user can cause is reported on standard error, without a traceback.  A closed pipe (`| head`) takes
nothing but the rest of the output.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import gc
import io
import os
import signal
import stat
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from layermem import __version__
from layermem.cli import (
    caffe,
    compare,
    completion,
    convert,
    curves,
    data,
    docs,
    draw,
    examples,
    fit,
    init,
    plan,
    plan_graph,
    predict,
    report,
    setup_caffe,
    setup_cuda,
    show,
    test,
    time,
    train,
    watch,
)
from layermem.cli.combinations import check_combinations
from layermem.cli.launch import RankJob, silence_others
from layermem.cli.other_names import refuse_other_names
from layermem.cli.parser import Parser, VerbParser
from layermem.cli.verbosity import DISK_FULL, apply_verbosity, lost_output
from layermem.errors import InputError, LayermemError
from layermem.utils.early_signals import INTERRUPTED
from layermem.utils.system_faults import system_fault
from layermem.utils.text import NO_BREAK, abbreviated, wrap

GROUPS: dict[str, dict[str, Any]] = {
    "train a net, and use it": {
        "train": train,
        "init": init,
        "data": data,
        "test": test,
        "predict": predict,
        "curves": curves,
        "watch": watch,
    },
    "see what memory and time a net takes": {
        "plan": plan,
        "compare": compare,
        "fit": fit,
        "report": report,
        "show": show,
        "draw": draw,
        "plan-graph": plan_graph,
        "time": time,
        "devices": time,
    },
    "come from Caffe, or go to ONNX": {"convert": convert, "caffe": caffe, "setup-caffe": setup_caffe},
    "find out what is here, and set it up": {
        "examples": examples,
        "docs": docs,
        "setup-cuda": setup_cuda,
        "completion": completion,
    },
}
VERBS = {verb: module for group in GROUPS.values() for verb, module in group.items()}
EPILOG = """\
`layermem VERB --help` explains a verb and gives an example; `layermem docs` lists
the pages of the documentation.

exit codes: 0 done, 2 the input is wrong, 3 no plan fits the budget,
            4 the device failed, 5 training diverged, 130 interrupted,
            143 ended by SIGTERM
"""
RESEND_DELAY = 0.01  # seconds, by which the interrupted callback has returned
READER_GONE = errno.EPIPE, errno.EIO  # errors of pipes, and of a terminal that was closed
PLANNING = compare.run_compare, fit.run_fit, plan.run_plan  # verbs that hold nothing to close
# Plans are many small objects without cycles; with the defaults, collection takes a third of the time.
GC_THRESHOLDS = 100_000, 50, 100


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    gc.set_threshold(*GC_THRESHOLDS)
    job = RankJob()
    with _resend_lost_interrupts():
        try:
            return job.end(_run(argv, job))
        except BaseException as error:
            job.is_agreed = False
            if not _is_interrupt(error):
                if job.group is not None and job.group.size > 1:
                    traceback.print_exc()
                    job.end(LayermemError.exit_code)
                raise
            _report(["interrupted"])
            return job.end(INTERRUPTED)


def _run(argv: Sequence[str] | None, job: RankJob) -> int:
    try:
        return _run_verb(argv, job)
    except SystemExit as end:  # argparse: 0 after --help, 2 after an error
        return end.code if isinstance(end.code, int) else 2
    except LayermemError as error:
        job.is_agreed = error.is_agreed
        if not error.is_reported:
            _report(error.lines)
        return error.exit_code
    except (OSError, MemoryError, RuntimeError, ImportError, SystemError) as error:
        fault = system_fault(error) or _not_built(error)
        if fault is None:
            raise
        job.is_agreed = False
        if isinstance(error, OSError):
            fault = lost_output(error) or fault
        _report(fault.lines)
        return fault.exit_code


def _not_built(error: Exception) -> InputError | None:
    """The error of an import of the native module; None for other errors."""
    if not isinstance(error, ImportError) or (error.name != "layermem" and "layermem._native" not in str(error)):
        return None
    return InputError("the native module is not built for this Python; build it with `make native`")


def _run_verb(argv: Sequence[str] | None, job: RankJob) -> int:
    _prepare_streams()
    if completion.is_wanted():
        completion.complete(make_parser())
    words = sys.argv[1:] if argv is None else argv
    group = job.open(words)
    arguments = group.agree(lambda: _parse(words))
    arguments.group = group
    silence_others(arguments, group)
    is_plan_alone = argv is None and arguments.run in PLANNING
    if is_plan_alone:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # otherwise NumPy starts threads that spin
    with apply_verbosity(arguments):
        code: int = arguments.run(arguments)
    sys.stdout.flush()
    if is_plan_alone:
        gc.freeze()  # the process ends: a search for cycles among its objects takes 0.1 s
    return code


def _parse(words: Sequence[str]) -> argparse.Namespace:
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    elif words[:1] == ["version"]:
        words = ["--version"]
    elif not words:
        make_parser().print_help()
        raise SystemExit(InputError.exit_code)
    refuse_other_names(words)
    arguments = make_parser(*words[:1]).parse_args(words)
    arguments.words = words
    check_combinations(arguments)
    return arguments


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C caused `error`: imports of native modules and class definitions wrap it in other errors."""
    return error is not None and (isinstance(error, KeyboardInterrupt) or _is_interrupt(error.__cause__))


@contextlib.contextmanager
def _resend_lost_interrupts() -> Iterator[None]:
    """Send SIGINT again if Python drops the KeyboardInterrupt in a finalizer or another callback of the interpreter,
    whose errors go to `sys.unraisablehook`."""
    previous = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            previous(unraisable)
            return
        resend = threading.Timer(RESEND_DELAY, os.kill, (os.getpid(), signal.SIGINT))
        resend.daemon = True
        resend.start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = previous


def _prepare_streams() -> None:
    """Make output safe: replace a closed stream (`>&-`) by /dev/null, go on without a reader of a pipe and with a
    full disk of standard error, and escape characters that a stream's encoding lacks."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            with contextlib.suppress(OSError):
                os.fstat(number)
                continue  # the descriptor is open and belongs to others
            os.open(os.devnull, os.O_RDWR)  # takes this descriptor, the lowest free one, so that no data file gets it
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115
        elif number and isinstance(stream, io.TextIOWrapper):
            if stream.errors == "strict":
                stream.reconfigure(errors="backslashreplace")
            if stream is getattr(sys, f"__{name}__") and (number == 2 or _has_reader(number)):
                setattr(sys, name, _that_may_be_lost(stream, number))


def _has_reader(number: int) -> bool:
    """Whether what is written to a descriptor goes to a program or a terminal, which may go away."""
    mode = os.fstat(number).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(number)


def _that_may_be_lost(stream: io.TextIOWrapper, number: int) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(_Output(number)),
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


class _Output(io.FileIO):
    """Output whose reader may go away, as `head` does: what is written then is lost, and nothing else.  Standard error
    is also lost on a full disk, of which it cannot tell."""

    def __init__(self, number: int):
        super().__init__(number, "w", closefd=False)
        self._lost = (*READER_GONE, *(DISK_FULL if number == 2 else ()))

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in self._lost:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return len(memoryview(data).cast("B"))


def _report(lines: Sequence[str]) -> None:
    """Print an error to standard error, wrapped to the terminal; a name in it may be of any length."""
    sentence, *details = map(abbreviated, lines)
    print("\n".join(map(wrap, (f"layermem:{NO_BREAK}{sentence}", *details))), file=sys.stderr)


def make_parser(verb: str = "") -> argparse.ArgumentParser:
    """Make the parser of all verbs, or only of `verb` and those in its module, because the others would take most of
    the time."""
    parser = Parser(
        prog="layermem", description="Train Caffe networks inside a memory budget that you name.", epilog=EPILOG
    )
    parser.add_argument("--version", action="version", version=f"layermem {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True, parser_class=VerbParser)
    for module in {VERBS[verb]} if verb in VERBS else dict.fromkeys(VERBS.values()):
        module.add_verbs(verbs)
    parser.headings = {next(iter(group)): heading for heading, group in GROUPS.items()}
    return parser
