"""Reads the logs of `train --log`, also while a run writes them, and finds the training that they describe.

read_records("run.jsonl")    every record of every run
last_training(records)       the last run with the runs that it resumed, each iteration once
current_start(records)       the start of the last run, with its plan of now
curves(records)              losses, outputs and learning rates over iterations
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from layermem.errors import InputError
from layermem.report.records import FORMAT, Record, Value
from layermem.report.run_log import DETAILS, ENDINGS, FIRST_COLUMNS
from layermem.utils.files import check_ending
from layermem.utils.input_files import read_bytes

LOG_LIMIT_BYTES = 1 << 30
REPEATED = ("train", "test")  # records of iterations that a resumed run makes again


@dataclass(frozen=True)
class Curve:
    """Values over iterations; NaN and infinite values are None.

    net    "train", "test 0", "test 1" ...
    kind   "loss" (of each iteration, or test), "average_loss", "learning_rate" or "output"
    name   name of the output, such as "accuracy" or "accuracy[2]"; otherwise of the kind
    """

    net: str
    kind: str
    name: str
    iterations: tuple[int, ...]
    values: tuple[float | None, ...]


def read_records(path: str) -> list[Record]:
    """The records of the log `path`, in their order; a last line that is not yet complete is left out."""
    check_ending(path, ENDINGS, "a log")
    raw = read_bytes(path, what="log", limit=LOG_LIMIT_BYTES)
    try:
        text = raw[: raw.rfind(b"\n") + 1].decode()
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text; give a log of `layermem train`", path=path) from None
    records = _json_records(path, text) if path.lower().endswith(".jsonl") else _csv_records(path, text)
    if records and records[0].get("event") != "start":
        raise _broken(path, 1)
    if any(record["event"] == "start" and record.get("format") != FORMAT for record in records):
        raise InputError(f"is a log of another version; format {FORMAT} is read, so use that version", path=path)
    return records


def last_training(records: Sequence[Record]) -> list[Record]:
    """The records of the last run and of the runs that it resumed, without iterations that were repeated."""
    result: list[Record] = []
    for record in records:
        if record["event"] == "start":
            begin = record.get("iteration")
            resumes = record.get("resumed_from") is not None and isinstance(begin, int)
            result = [each for each in result if not _is_at_or_after(each, begin)] if resumes else []
        result.append(record)
    return result


def current_start(records: Sequence[Record]) -> Record:
    """The last record `start`, with the plan of the last change of the budget since; {} without one."""
    start: Record = {}
    for record in records:
        if record["event"] == "start":
            start = record
        elif record["event"] == "budget":
            start = {**start, **record, "event": "start", "iteration": start.get("iteration")}
    return start


def curves(records: Iterable[Record]) -> list[Curve]:
    """A curve for the loss, each value of each output, and the learning rate, in this order by net."""
    points: dict[tuple[str, str, str], dict[int, float | None]] = {}
    for record in records:
        iteration = record.get("iteration")
        if record["event"] not in REPEATED or not isinstance(iteration, int):
            continue
        net = "train" if record["event"] == "train" else f"test {record.get('test_net')}"
        for kind, name, value in _values(record):
            points.setdefault((net, kind, name), {})[iteration] = value
    order = sorted(points, key=lambda key: (key[0] != "train", key[0]))
    return [Curve(*key, tuple(points[key]), tuple(points[key].values())) for key in order]


def _values(record: Record) -> Iterator[tuple[str, str, float | None]]:
    """(kind, name, value) of each number of a record that is not a time."""
    for kind in ("loss", "average_loss", "learning_rate"):
        if record["event"] == "train" or (kind == "loss" and record.get(kind) is not None):
            yield kind, kind, _number(record.get(kind))
    outputs = record.get("outputs")
    for name, value in outputs.items() if isinstance(outputs, dict) else ():
        if isinstance(value, list):
            yield from (("output", f"{name}[{index}]", _number(each)) for index, each in enumerate(value))
        else:
            yield "output", name, _number(value)


def _number(value: Value) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _is_at_or_after(record: Record, begin: Value) -> bool:
    iteration = record.get("iteration")
    return record["event"] in REPEATED and isinstance(iteration, int) and isinstance(begin, int) and iteration >= begin


def _json_records(path: str, text: str) -> list[Record]:
    records: list[Record] = []
    for line, content in enumerate(text.splitlines(), start=1):
        try:
            record = json.loads(content)
        except ValueError:
            raise _broken(path, line) from None
        if not isinstance(record, dict) or not isinstance(record.get("event"), str):
            raise _broken(path, line)
        records.append(record)
    return records


def _csv_records(path: str, text: str) -> list[Record]:
    rows = csv.reader(io.StringIO(text))
    header = next(rows, [])
    if header and (tuple(header[: len(FIRST_COLUMNS)]) != FIRST_COLUMNS or header[-1] != DETAILS):
        raise _broken(path, 1)
    records = []
    for row in rows:
        if len(row) != len(header):
            raise _broken(path, rows.line_num)
        try:
            records.append(_record(dict(zip(header, row))))
        except ValueError:
            raise _broken(path, rows.line_num) from None
    return records


def _record(cells: dict[str, str]) -> Record:
    """The record of a row of a CSV file."""
    details = cells.pop(DETAILS)
    record: Record = {"event": cells.pop("event")}
    for name in FIRST_COLUMNS[1:]:
        if text := cells.pop(name):
            record[name] = json.loads(text)
    outputs: dict[str, Value] = {
        name.partition("/")[2]: json.loads(text) for name, text in cells.items() if text and _is_of(name, record)
    }
    if record["event"] in REPEATED:
        record |= {"loss": record.get("loss"), "outputs": outputs}
    return record | (json.loads(details) if details else {})


def _is_of(column: str, record: Record) -> bool:
    net = f"test{record['test_net']}" if record["event"] == "test" else "train"
    return column.startswith(f"{net}/")


def _broken(path: str, line: int) -> InputError:
    return InputError("is not a record of a log; give a log that `layermem train --log` wrote", path=path, line=line)
