"""Turns of contestants, each a fresh process that runs a number of steps in a row, and their statistics."""

from __future__ import annotations

import json
import os
import re
import statistics
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tools.cpu.contestants import Contestant, Setting, command, environment
from tools.gpu import process

LEFT_OUT = 2  # first steps of a turn that are not counted: they touch new memory, compile, and fill caches
LIMIT_SECONDS = 3600.0  # time limit of a turn
ERROR_LINE = re.compile(r"[\w.]*(Error|Exception)\b.*: .")
ERROR_COLUMNS = 160  # width of an error in the table
Row = list[str]
HEAD = ["", "s per step (median)", "minimum", "ours / it", "peak resident MiB", ""]


class TurnError(Exception):
    """A contestant failed; the text is the reason."""


@dataclass
class Result:
    """The counted steps of a contestant over all its turns; `error` if it failed in one."""

    contestant: Contestant
    seconds: list[float] = field(default_factory=list)
    peak_bytes: int = 0
    version: str = ""
    note: str = ""
    error: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def is_complete(self) -> bool:
        return bool(self.seconds) and not self.error

    def add(self, report: dict[str, Any]) -> None:
        """Count a turn by the line of JSON that it printed."""
        self.seconds += report["seconds"][LEFT_OUT:]
        self.peak_bytes = max(self.peak_bytes, report["bytes"])
        self.version, self.note = report["is"], report.get("note", "")


def race(contestants: Iterable[Contestant], setting: Setting, rounds: int, parameters: int) -> list[Result]:
    """Give the contestants `rounds` turns alternately; one that fails gets no further turns."""
    results = [Result(each) for each in contestants]
    fill_compile_cache(results, setting)
    for turn in range(1, rounds + 1):
        for result in results:
            if not result.error:
                take_turn(result, setting, parameters)
                print(f"{setting.net} turn {turn} of {rounds}: {progress(result)}", file=sys.stderr, flush=True)
    return results


def fill_compile_cache(results: Iterable[Result], setting: Setting) -> None:
    """Compile once per mode before the turns, so that no turn holds the compiler or its worker processes."""
    modes = dict.fromkeys(replace(each.contestant, allocator=None) for each in results if each.contestant.compiled)
    for contestant in modes:
        try:
            run_turn(contestant, replace(setting, steps=1, compile_threads=os.cpu_count() or 1))
        except TurnError as error:  # its turn fails in the same way, and reports it
            print(f"{setting.net}: {contestant.name}: {error}", file=sys.stderr, flush=True)


def take_turn(result: Result, setting: Setting, parameters: int) -> None:
    try:
        report = run_turn(result.contestant, setting)
        if report.get("parameters", parameters) != parameters:
            raise TurnError(f"the net has {report['parameters']:,} parameters instead of {parameters:,}")
        result.add(report)
    except TurnError as error:
        result.error = str(error)


def run_turn(contestant: Contestant, setting: Setting) -> dict[str, Any]:
    """Run the process of a contestant to its end; return its report."""
    log = setting.description.with_name("turn.log")
    log.unlink(missing_ok=True)
    code = process.run(command(contestant, setting), log, LIMIT_SECONDS, environment(contestant, setting))
    if code is None:
        raise TurnError(f"no result within {LIMIT_SECONDS:.0f} s")
    if code:
        raise TurnError(f"exit code {code}: {last_error(log)}")
    reports = [line for line in log.read_text(errors="replace").splitlines() if line.startswith('{"')]
    if not reports:
        raise TurnError(f"no result: {last_error(log)}")
    report: dict[str, Any] = json.loads(reports[-1])
    return report


def last_error(log: Path) -> str:
    """The last line that names an exception (PyTorch adds advice after it), else the last line."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return next((line for line in reversed(lines) if ERROR_LINE.match(line)), process.last_lines(log)).strip()


def progress(result: Result) -> str:
    if result.error:
        return f"{result.contestant.name}: {result.error}"
    return f"{result.contestant.name} ({result.version}): {result.median:.3f} s, {result.peak_bytes / 2**20:,.0f} MiB"


# -- tables ------------------------------------------------------------------------------------------------------------


def table_rows(results: Iterable[Result]) -> list[Row]:
    """A row of the table for each contestant, in their order."""
    results = list(results)
    ours = first_of_ours(results)
    return [table_row(each, ours) for each in results]


def table_row(result: Result, ours: Result | None) -> Row:
    if not result.is_complete:
        return [result.contestant.name, "failed", "", "", "", result.error.replace("|", "/")[:ERROR_COLUMNS]]
    ratio = f"{ours.median / result.median:.2f}" if ours else ""
    times = [f"{result.median:.3f}", f"{min(result.seconds):.3f}", ratio]
    return [result.contestant.name, *times, f"{result.peak_bytes / 2**20:,.0f}", result.note]


def comparison(results: Iterable[Result]) -> str:
    """The sentence below the table; empty without a peer that completed its turns."""
    results = list(results)
    ours = first_of_ours(results)
    peers = [each for each in results if each.contestant.is_peer and each.is_complete]
    if not peers:
        return ""
    fastest = min(peers, key=lambda each: each.median)
    if ours is None:
        return f"The fastest peer is {fastest.contestant.name}."
    ratio = fastest.median / ours.median
    name = ours.contestant.name
    return f"{name} is {ratio:.2f} times as fast as the fastest peer ({fastest.contestant.name})."


def first_of_ours(results: Iterable[Result]) -> Result | None:
    """The result to which others are compared: layermem without a budget, if it took part."""
    return next((each for each in results if not each.contestant.is_peer and each.is_complete), None)
