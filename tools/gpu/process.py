"""Processes with a time limit, which takes all that they started with them, and which end with the one that began
them."""

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
_prctl = getattr(ctypes.CDLL(None), "prctl", None)  # of Linux


def run(command: Sequence[str], log: Path, seconds: float, environment: Mapping[str, str] | None = None) -> int | None:
    """Its exit code, or None if it was killed because its time was up; what it says goes to the end of `log`.

    It has a session of its own, and is killed with its group; where this process is killed, by the kernel."""
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
        finally:  # also where this process is stopped
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _end_with(parent: int) -> None:
    """In a new process: a GPU would be kept busy by one that outlives its parent."""
    if _prctl is not None:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # which has ended before that
            os._exit(1)


def last_lines(log: Path, count: int = 1, begin: int = 0) -> str:
    """Of what stands behind byte `begin`."""
    said = log.read_bytes()[begin:].decode("utf-8", errors="replace").strip().splitlines() if log.exists() else []
    return "\n".join(said[-count:]) or "without a word"
