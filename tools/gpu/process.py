"""Processes with a time limit that end together with their descendants, and with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from layermem.utils.processes import ends_with_this_process

ROOT = Path(__file__).resolve().parents[2]


def run(command: Sequence[str], log: Path, seconds: float, environment: Mapping[str, str] | None = None) -> int | None:
    """Run a command; return its exit code, or None if it exceeded `seconds`.  Its output is appended to `log`.

    It has its own session and is killed with its group; if this process is killed, the kernel kills it."""
    with open(log, "a", encoding="utf-8") as file:
        process = subprocess.Popen(
            command,
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            start_new_session=True,
            env=None if environment is None else dict(environment),
            preexec_fn=ends_with_this_process(signal.SIGKILL),  # otherwise it would keep the GPU busy
        )
        try:
            return process.wait(max(seconds, 0.0))
        except subprocess.TimeoutExpired:
            return None
        finally:  # also if this process is stopped
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def last_lines(log: Path, count: int = 1, begin: int = 0) -> str:
    """The last lines of the log after byte `begin`."""
    said = log.read_bytes()[begin:].decode("utf-8", errors="replace").strip().splitlines() if log.exists() else []
    return "\n".join(said[-count:]) or "without a word"
