"""One command, its verbs, and how it ends.

    0 done   2 the input is wrong   3 no plan fits the budget   4 the device failed   130 interrupted

Whatever a user can cause is one line on standard error.  A reader that has seen enough (`| head`) ends it quietly.
"""

from __future__ import annotations

import argparse
import errno
import gc
import os
import sys
from collections.abc import Sequence

from layermem import __version__
from layermem.cli import compare, convert, fit, plan, show, time, train
from layermem.cli.options import VerbParser
from layermem.errors import InputError, LayermemError
from layermem.utils.text import NO_BREAK, wrap

VERBS = (train, plan, compare, fit, show, time, convert)
INTERRUPTED = 130
NO_ROOM = errno.ENOSPC, errno.EDQUOT, errno.EIO  # of a standard output that is a file
RARELY = 100_000, 50, 100  # plans are many small objects without cycles: looking for some takes a third of the time


# What the caffe command takes and ours does not: a word, or a verb, with what says the same here.
CAFFE_OPTIONS = {
    "solver": "--solver", "model": "--net", "weights": "--weights", "snapshot": "--snapshot",
    "iterations": "--iterations", "phase": "--phase", "level": "--net-level", "stage": "--net-stage",
    "gpu": "--device cuda", "sigint_effect": "--sigint-effect", "sighup_effect": "--sighup-effect",
}  # fmt: skip
OURS_TOO = ("--stage", "--model")  # which mean something else here
CAFFE_VERBS = {"device_query": "devices"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    gc.set_threshold(*RARELY)
    try:
        words = sys.argv[1:] if argv is None else argv
        _refuse_words_of_caffe(words)
        arguments = make_parser().parse_args(words)
        code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except SystemExit as end:  # argparse: 0 after --help, 2 after an error
        return end.code if isinstance(end.code, int) else 2
    except LayermemError as error:
        _report(error.lines)
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains while it shuts down
        return 0
    except OSError as error:
        if error.filename is not None or error.errno not in NO_ROOM:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or what is left of the output fails again
        _report([f"cannot write the output: {error.strerror}; free some space or write to another disk"])
        return InputError.exit_code
    except ImportError as error:
        if error.name != "layermem" and "layermem._native" not in str(error):
            raise
        _report(["the native module is not built for this Python; build it with `make native`"])
        return InputError.exit_code
    except KeyboardInterrupt:
        _report(["interrupted"])
        return INTERRUPTED


def _report(lines: Sequence[str]) -> None:
    """Print an error to standard error, wrapped to the terminal."""
    sentence, *details = lines
    print("\n".join(map(wrap, (f"layermem:{NO_BREAK}{sentence}", *details))), file=sys.stderr)


def _refuse_words_of_caffe(words: Sequence[str]) -> None:
    for word in words[:1]:
        if word in CAFFE_VERBS:
            raise InputError(f"Caffe's '{word}' is `layermem {CAFFE_VERBS[word]}` here")
    for word in (word.partition("=")[0] for word in words[1:]):
        ours = CAFFE_OPTIONS.get(word.lstrip("-"))
        if word.startswith("-") and ours and word not in (ours, *OURS_TOO):
            raise InputError(f"Caffe's '{word}' is written {ours} here; `layermem {words[0]} --help` has all options")


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="layermem",
        description="Train Caffe networks inside a memory budget that you name.",
        epilog="`layermem VERB --help` explains a verb and gives an example.",
    )
    parser.add_argument("--version", action="version", version=f"layermem {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True, parser_class=VerbParser)
    for module in VERBS:
        module.add_verbs(verbs)
    return parser
