"""--quiet and --verbose, which every verb has.

    --quiet      results and errors only: no progress, no warnings but those of files that are damaged or lost; `train`
                 prints nothing, `test` its means
    --verbose    steps such as reading, planning and writing, with seconds since the start, on standard error

Packages report such steps to their logger (`layermem.utils.steps`); this module shows them.
"""

from __future__ import annotations

import argparse
import errno
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from layermem.errors import InputError
from layermem.utils.steps import LOGGER
from layermem.utils.text import wrap

DISK_FULL = errno.ENOSPC, errno.EDQUOT, errno.EIO  # errors when standard output is a file


def add_verbosity(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument("-q", "--quiet", action="store_true", help="print results and errors only")
    group.add_argument("-v", "--verbose", action="store_true", help="print what is done, with times, on standard error")


def lost_output(error: OSError) -> InputError | None:
    """The error of standard output that can no longer be written, which goes to /dev/null from now on: else the rest
    of it would fail at exit.  None for the error of another file."""
    if error.filename is not None or error.errno not in DISK_FULL:
        return None
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return InputError(f"cannot write the output: {error.strerror}; free some space or write to another disk")


@contextmanager
def apply_verbosity(arguments: argparse.Namespace) -> Iterator[None]:
    """Show steps and warnings as the options say, for the duration of a command."""
    level, handler = LOGGER.level, _Steps()
    quiet, verbose = getattr(arguments, "quiet", False), getattr(arguments, "verbose", False)
    LOGGER.setLevel(logging.ERROR if quiet else logging.INFO if verbose else logging.WARNING)
    if verbose:
        LOGGER.addHandler(handler)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)


class _Steps(logging.Handler):
    """Lines such as "[  0.31 s] planned ...", on standard error."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._begin = time.monotonic()

    def emit(self, record: logging.LogRecord) -> None:
        print(wrap(f"[{time.monotonic() - self._begin:6.2f} s]  {record.getMessage()}"), file=sys.stderr, flush=True)
