"""The log files of `train --log`: run.jsonl with a JSON object in each line, or run.csv with a row for each record.

Every line is written with one write to a file that is opened for appending.  An incomplete last line, after a crash of
the machine, is removed when the log is opened again.  A run that finds a log appends to it, unless another run has it
open, since the records of two runs in one log would give one mixed curve.
source  jsonlines.org; RFC 4180
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
from collections.abc import Iterator, Sequence

from layermem.errors import InputError
from layermem.report.records import FORMAT, Record
from layermem.utils.files import check_ending, check_folder, check_output
from layermem.utils.input_files import check_regular
from layermem.utils.locks import lock
from layermem.utils.text import printable

ENDINGS = (".jsonl", ".csv")
FIRST_COLUMNS = ("event", "iteration", "seconds", "loss", "average_loss", "learning_rate", "test_net")
DETAILS = "details"  # the last column: the fields without a column of their own, as JSON
FIRST_LINE_BYTES = 1 << 16  # no log has a longer first line


def check_log(path: str) -> None:
    """Raise InputError, before any work, for a path that is not a log by its name or content."""
    check_ending(path, ENDINGS, "a log")
    check_folder(path)
    if os.path.lexists(path):
        _check_first_line(path)
    else:
        check_output(path)


def open_log(path: str, outputs: Sequence[str]) -> LogFile:
    """Open the log at `path`, new or to be appended to; `outputs` are the names of the columns for outputs of nets."""
    check_log(path)
    return JsonLines(path) if path.lower().endswith(".jsonl") else Csv(path, outputs)


def output_column(test_net: int | None, name: str) -> str:
    """Return "train/loss" or "test0/accuracy": the column of an output of the train net (None), or of a test net."""
    return printable(f"{'train' if test_net is None else f'test{test_net}'}/{name}")


def append(path: str, file: int, content: bytes) -> None:
    """Append `content` to an open file, or nothing and raise InputError."""
    begin = os.fstat(file).st_size
    with named(path):
        try:
            if os.write(file, content) < len(content):
                raise OSError("no space is left")
        except OSError:
            os.ftruncate(file, begin)
            raise


class LogFile:
    """A file of whole lines, to which records are appended; call it with each."""

    def __init__(self, path: str):
        self.path = path
        with named(path):
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
            if not lock(self._file):
                self.close()
                raise InputError("is the log of a run that goes on; give another name for this one", path=path)
            self._remove_torn_line()

    def __call__(self, record: Record) -> None:
        self._append(self._line(record))

    def _line(self, record: Record) -> str:
        raise NotImplementedError

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> LogFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def is_lost(self) -> bool:
        """Whether its name is no longer that of the file: it was removed, moved or replaced."""
        try:
            return not os.path.samestat(os.stat(self.path), os.fstat(self._file))
        except OSError:
            return True

    @property
    def is_empty(self) -> bool:
        return os.fstat(self._file).st_size == 0

    def _append(self, line: str) -> None:
        append(self.path, self._file, line.encode())

    def _remove_torn_line(self) -> None:
        size = os.fstat(self._file).st_size
        end = size
        while end and os.pread(self._file, 1, end - 1) != b"\n":
            end -= 1
        if end < size:
            os.ftruncate(self._file, end)


class JsonLines(LogFile):
    """A JSON object in each line."""

    def _line(self, record: Record) -> str:
        return json.dumps(record, allow_nan=False) + "\n"


class Csv(LogFile):
    """A row for each record, under one header.  A value that is a list, and the details, are JSON."""

    def __init__(self, path: str, outputs: Sequence[str]):
        super().__init__(path)
        self.columns = (*FIRST_COLUMNS, *outputs, DETAILS)
        header = _csv_line(self.columns)
        if self.is_empty:
            self._append(header)
        elif not self._starts_with(header.encode()):
            self.close()
            raise InputError("has columns of another net; give another name for this log", path=path)

    def _starts_with(self, header: bytes) -> bool:
        """Whether this is the first line, whose end an editor may have made CRLF."""
        return os.pread(self._file, len(header) + 1, 0).replace(b"\r\n", b"\n").startswith(header)

    def _line(self, record: Record) -> str:
        rest = dict(record)
        cells = {name: rest.pop(name) for name in FIRST_COLUMNS if name in rest}
        outputs, net = rest.pop("outputs", None), record.get("test_net")
        if isinstance(outputs, dict):
            test_net = net if isinstance(net, int) else None
            cells |= {output_column(test_net, name): value for name, value in outputs.items()}
        if rest:
            cells[DETAILS] = rest
        return _csv_line([_cell(cells.get(name)) for name in self.columns])


def _cell(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, allow_nan=False)


def _csv_line(cells: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _check_first_line(path: str) -> None:
    check_regular(path, what="log")
    with named(path), open(path, "rb") as file:
        first = file.readline(FIRST_LINE_BYTES)
    if first and not (_is_start(first) if path.lower().endswith(".jsonl") else _is_header(first)):
        raise InputError("exists and is no log of `layermem train`; give another name", path=path)


def _is_start(line: bytes) -> bool:
    try:
        record = json.loads(line)
    except ValueError:
        return not line.endswith(b"\n")  # the torn first line of a log
    return isinstance(record, dict) and record.get("event") == "start" and record.get("format") == FORMAT


def _is_header(line: bytes) -> bool:
    return line.startswith(",".join(FIRST_COLUMNS).encode())


@contextlib.contextmanager
def named(path: str) -> Iterator[None]:
    """Turn any OSError into an InputError with the path."""
    try:
        yield
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}; free some space or use another path"
        raise InputError(what, path=path) from None
