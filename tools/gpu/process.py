"""Processes with a time limit that end together with their descendants, and with their parent."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PR_SET_PDEATHSIG = 1
_prctl = getattr(ctypes.CDLL(None), "prctl", None)  # on Linux


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
            preexec_fn=partial(_end_with, os.getpid()),
        )
        try:
            return process.wait(max(seconds, 0.0))
        except subprocess.TimeoutExpired:
            return None
        finally:  # also if this process is stopped
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _end_with(parent: int) -> None:
    """Make a new process end with its parent; otherwise it would keep the GPU busy."""
    if _prctl is not None:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent has already ended
            os._exit(1)


def last_lines(log: Path, count: int = 1, begin: int = 0) -> str:
    """The last lines of the log after byte `begin`."""
    said = log.read_bytes()[begin:].decode("utf-8", errors="replace").strip().splitlines() if log.exists() else []
    return "\n".join(said[-count:]) or "without a word"
