"""Processes with a time limit, which takes all that they started with them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(command: Sequence[str], log: Path, seconds: float, environment: Mapping[str, str] | None = None) -> int | None:
    """Its exit code, or None if it was killed because its time was up; what it says goes to the end of `log`."""
    with open(log, "a", encoding="utf-8") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=ROOT, start_new_session=True,
            env=None if environment is None else dict(environment),
        )  # fmt: skip
        try:
            return process.wait(max(seconds, 0.0))
        except subprocess.TimeoutExpired:
            return None
        finally:  # also where this process is stopped
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def last_lines(log: Path, count: int = 1) -> str:
    said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.exists() else []
    return "\n".join(said[-count:]) or "without a word"
