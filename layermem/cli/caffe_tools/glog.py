"""The log of Caffe's programs, as glog writes it, with glog's flags and environment.

    I1128 14:30:00.123456  1234 solver.cpp:239] Iteration 100 (52.1 iter/s, 1.92s/100 iters), loss = 0.2137

A line goes to standard error if --alsologtostderr or --logtostderr is on or its severity reaches --stderrthreshold, and
to files in --log_dir unless --logtostderr is on.  Without --log_dir no file is written (glog's are then in /tmp).
"""

from __future__ import annotations

import getpass
import io
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from datetime import datetime
from pathlib import Path
from typing import TextIO

from layermem.cli.caffe_tools.gflags import Flag, Value, parse_flags
from layermem.cli.caffe_tools.variables import in_words_of_caffe
from layermem.report.log import NOTES, Log
from layermem.utils.text import printable

SEVERITIES = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "FATAL"}  # their numbers are 0 to 3
FLAGS = (
    Flag("alsologtostderr", False, "lines on standard error beside the files"),
    Flag("logtostderr", False, "lines on standard error, and no files"),
    Flag("stderrthreshold", 2, "lines on standard error from this severity on: 0 INFO, 1 WARNING, 2 ERROR, 3 FATAL"),
    Flag("minloglevel", 0, "no lines below this severity"),
    Flag("log_dir", "", "folder of the files of the log"),
    Flag("log_link", "", "another folder for links to the files"),
    Flag("log_prefix", True, "the prefix of each line"),
    Flag("v", 0, "with 1 or more, lines about what is read, planned and written"),
    # These change nothing here.
    Flag("colorlogtostderr", False, "colours"),
    Flag("drop_log_memory", True, "memory of the system's cache of files"),
    Flag("alsologtoemail", "", "mail"),
    Flag("logemaillevel", 999, "mail"),
    Flag("logmailer", "/bin/mail", "mail"),
    Flag("log_backtrace_at", "", "a stack trace at a line"),
    Flag("logbuflevel", 0, "lines that are written later"),
    Flag("logbufsecs", 30, "seconds until they are"),
    Flag("logfile_mode", 436, "permissions of files"),
    Flag("max_log_size", 1800, "MB of a file"),
    Flag("stop_logging_if_full_disk", False, "no lines when the disk is full"),
    Flag("symbolize_stacktrace", True, "names in stack traces"),
    Flag("vmodule", "", "`v` of a module"),
)


def flags_of(environment: Mapping[str, str], *, on_terminal: bool) -> list[Flag]:
    """Return glog's flags with the defaults that GLOG_ variables state; `on_terminal` is that of --alsologtostderr."""
    found = []
    for flag in FLAGS:
        text = environment.get(f"GLOG_{flag.name}")
        default = on_terminal if flag.name == "alsologtostderr" and text is None else flag.default
        if text is not None:
            default = parse_flags([f"--{flag.name}={text}"], [flag])[0][flag.name]  # glog ignores wrong ones
        found.append(Flag(flag.name, default, flag.help))
    return found


class Glog(Log):
    """Writes lines as the values of glog's flags say; `program` names its files."""

    def __init__(self, program: str, values: Mapping[str, Value], stream: TextIO | None = None):
        super().__init__(stream)
        self.program, self.values = program, values
        self._files: list[tuple[int, TextIO]] = []  # with the least severity of each
        self._open_files()

    def write(self, text: str, place: str = NOTES, severity: str = "I") -> None:
        """Write the lines of a text, in which options of `layermem` are named as Caffe's programs take them."""
        number = [*SEVERITIES].index(severity)
        if number < int(self.values["minloglevel"]) and severity != "F":
            return
        on_stderr = self.values["alsologtostderr"] or self.values["logtostderr"]
        stderr = [self.stream] if on_stderr or number >= int(self.values["stderrthreshold"]) else []
        for target in (*stderr, *(file for least, file in self._files if number >= least)):
            if target.closed:  # lost while these lines were written to another
                continue
            try:
                for line in in_words_of_caffe(text).split("\n"):
                    prefix = f"{severity}{self.prefix(place)}" if self.values["log_prefix"] else ""
                    target.write(f"{prefix}{printable(line)}\n")
                target.flush()
            except OSError as error:
                if target is self.stream:
                    raise
                self._lose(target, error)

    def _lose(self, file: TextIO, error: OSError) -> None:
        """Say that a file cannot be written, and go on without it, as glog does."""
        self._files = [each for each in self._files if each[1] is not file]
        with suppress(OSError):
            file.close()
        self.write(f"Could not write to logging file: {file.name}: {error.strerror}", severity="E")

    def close(self) -> None:
        for _, file in self._files:
            file.close()

    def _open_files(self) -> None:
        """Open a file for each severity in --log_dir, and link PROGRAM.SEVERITY to it."""
        folder = str(self.values["log_dir"])
        if not folder or self.values["logtostderr"]:
            return
        now, host = datetime.now(), socket.gethostname().partition(".")[0]
        for number, severity in enumerate(("INFO", "WARNING", "ERROR")):
            name = f"{self.program}.{host}.{_user()}.log.{severity}.{now:%Y%m%d-%H%M%S}.{os.getpid()}"
            path = Path(folder, name)
            try:
                file = path.open("w", encoding="utf-8", errors="backslashreplace")
            except OSError as error:
                self.write(f"Could not create logging file: {path}: {error.strerror}", severity="E")
                return
            file.write(
                f"Log file created at: {now:%Y/%m/%d %H:%M:%S}\nRunning on machine: {host}\n"
                "Log line format: [IWEF]mmdd hh:mm:ss.uuuuuu threadid file:line] msg\n"
            )
            self._files.append((number, file))
            for where in filter(None, (folder, str(self.values["log_link"]))):
                self._link(Path(where, f"{self.program}.{severity}"), path)

    def _link(self, link: Path, path: Path) -> None:
        with suppress(OSError):  # a folder without links still has the files
            if link.is_symlink():
                link.unlink()
            link.symlink_to(path.name if link.parent == path.parent else path.absolute())


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        return "invalid-user"


class _Lines(io.TextIOBase):
    """A stream whose complete lines are written to a log."""

    def __init__(self, log: Glog, place: str, severity: str):
        self.log, self.place, self.severity = log, place, severity
        self._rest = ""

    encoding = "utf-8"
    errors = "backslashreplace"

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *complete, self._rest = (self._rest + text).split("\n")
        for line in complete:
            self.log.write(line, self.place, self.severity)
        return len(text)

    def end(self) -> None:
        """Write a last line that has no end."""
        if self._rest:
            self.write("\n")


@contextmanager
def into_log(log: Glog, place: str = NOTES) -> Iterator[None]:
    """A context in which standard output becomes lines of `log`, and standard error becomes warnings."""
    streams = _Lines(log, place, "I"), _Lines(log, place, "W")
    with ExitStack() as stack:
        stack.callback(sys.stdout.flush)
        for stream, redirect in zip(streams, (redirect_stdout, redirect_stderr)):
            stack.enter_context(redirect(stream))
            stack.callback(stream.end)
        yield
