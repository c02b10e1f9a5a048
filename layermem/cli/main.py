"""One command, its verbs, and how it ends.

    0 done   2 the input is wrong   3 no plan fits the budget   4 the device failed   130 interrupted

Whatever a user can cause is one line on standard error.  A reader that has seen enough (`| head`) ends it quietly.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence

from layermem import __version__
from layermem.cli import compare, convert, fit, plan, show, time, train
from layermem.cli.options import VerbParser
from layermem.errors import LayermemError

VERBS = (train, plan, compare, fit, show, time, convert)
INTERRUPTED = 130
RARELY = 100_000, 50, 100  # plans are many small objects without cycles: looking for some takes a third of the time


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    gc.set_threshold(*RARELY)
    try:
        arguments = make_parser().parse_args(argv)
        code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except SystemExit as end:  # argparse: 0 after --help, 2 after an error
        return end.code if isinstance(end.code, int) else 2
    except LayermemError as error:
        print(f"layermem: {' '.join(str(error).split())}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains while it shuts down
        return 0
    except KeyboardInterrupt:
        print("layermem: interrupted", file=sys.stderr)
        return INTERRUPTED


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
