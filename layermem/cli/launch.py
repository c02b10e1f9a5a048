"""The ranks of `train`, `time` and `caffe`: an MPI launcher starts them, and --ranks starts a launcher.

    mpiexec -n 4 layermem train --solver F        four processes, each of which is one rank
    layermem train --solver F --ranks 4           starts that mpiexec, and returns its exit code

One rank reports and writes files; the others are silent.  An error that all ranks agree on ends each with its exit
code. Any other error belongs to one rank, which reports it and ends the others through the transport.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING

from layermem.cli.verbosity import lost_output
from layermem.errors import InputError
from layermem.utils.early_signals import deliver

if TYPE_CHECKING:
    from layermem.distributed.group import Group

VERBS = ("train", "time", "caffe")  # verbs that may run as several ranks
# Signals sent to the launcher (solver/signals.py): at a SIGTERM it would end the ranks, and at a SIGHUP itself.
FORWARDED = {"SIGINT": "SIGINT", "SIGHUP": "SIGUSR1", "SIGUSR1": "SIGUSR1", "SIGTERM": "SIGINT"}
ABORTED = 255  # exit code of an mpiexec that a second SIGINT ends
REMEDY = (
    "pip install 'layermem[mpi]' mpich, or start the ranks with the launcher of the machine, and no --ranks: "
    "`mpiexec -n 4 layermem train ...`"
)
OUTPUTS = ("log", "log_every", "tensorboard", "plot")  # options of files that the first rank writes


class RankJob:
    """The ranks that train together; before `open`, and for other verbs, only this one."""

    def __init__(self) -> None:
        self.group: Group | None = None
        self.is_agreed = True  # whether all ranks end with the same error

    def open(self, words: Sequence[str]) -> Group:
        """Return the group of this process, which a launcher may have started as one of several ranks."""
        from layermem.distributed.group import Group

        transport = None
        if words and words[0] in VERBS:
            from layermem.distributed.mpi import connect, launched

            transport = connect() if launched() else None
        self.group = Group(transport)
        return self.group

    def end(self, code: int) -> int:
        """Return the exit code of this rank.  After an error unknown to the other ranks, end them."""
        if self.group is not None and self.group.transport is not None:
            if code and not self.is_agreed:
                self.group.transport.abort(code)
            self.group.transport.close()
        return code


def silence_others(arguments: argparse.Namespace, group: Group) -> None:
    """Let only the first rank print and write."""
    if not group.is_first:
        arguments.quiet, arguments.verbose = True, False
        for name in OUTPUTS:
            setattr(arguments, name, None)


def starts_ranks(arguments: argparse.Namespace) -> bool:
    """Whether --ranks requires processes to be started; InputError if a launcher started a different number."""
    group, ranks = arguments.group, arguments.ranks
    if ranks is None:
        return False
    if group.transport is not None and ranks != group.size:
        raise InputError(f"the launcher has started {group.size} ranks, and --ranks is {ranks}; leave --ranks out")
    if ranks < 1:
        raise InputError(f"--ranks {ranks} is too few; give 1 or more")
    return group.transport is None and ranks > 1


def start_ranks(count: int, words: Sequence[str]) -> int:
    """Run `layermem` with the same words as `count` ranks on this machine; return the exit code of the launcher.

    The launcher has its own session, so that it gets a signal of the terminal only once, from this process, and it
    ends with this process, where Linux lets it.  It writes to this process, since it ends the ranks when it cannot
    write."""
    from layermem.utils.processes import ends_with_this_process

    end_with_this_process = ends_with_this_process(signal.SIGTERM)

    def prepare() -> None:
        deliver()
        end_with_this_process()

    command = [launcher(), "-n", str(count), sys.executable, "-m", "layermem", *words]
    process = subprocess.Popen(
        command,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        preexec_fn=prepare,
    )
    received: list[signal.Signals] = []
    lost: list[InputError] = []

    def forward(number: int, frame: FrameType | None) -> None:
        received.append(signal.Signals(number))
        process.send_signal(signals[received[-1]])

    signals = {signal.Signals[here]: signal.Signals[there] for here, there in FORWARDED.items()}
    previous = {number: signal.signal(number, forward) for number in signals}
    deliver()
    try:
        code = _relayed(process, lost)
    finally:
        process.terminate()
        for number, handler in previous.items():
            signal.signal(number, handler)
    if lost:
        raise lost[0]
    if received and (code in (128 + signals[received[-1]], ABORTED) or code == received[-1] == signal.SIGINT):
        return 128 + received[-1]
    return code if code >= 0 else 128 - code


def _relayed(process: subprocess.Popen[str], lost: list[InputError]) -> int:
    """Write what `process` writes until it ends, and return its exit code; `lost` gets the errors of writing."""
    relays = [Thread(target=_relay, args=(process, number, lost), daemon=True) for number in (1, 2)]
    for thread in relays:
        thread.start()
    code = process.wait()
    for thread in relays:
        thread.join()
    return code


def _relay(process: subprocess.Popen[str], number: int, lost: list[InputError]) -> None:
    """Write what `process` writes to standard output (1) or error (2); on a full disk, add an error to `lost` and
    stop the training, as that of one process stops."""
    lines, stream = (process.stdout, sys.stdout) if number == 1 else (process.stderr, sys.stderr)
    assert lines is not None
    with lines:
        for line in lines:
            try:
                stream.write(line)
                stream.flush()
            except OSError as error:
                if not lost:
                    process.send_signal(signal.SIGINT)
                lost.append(lost_output(error) or InputError(f"cannot write the output: {error.strerror}"))


def launcher() -> str:
    """Return the mpiexec in the environment of this Python, or else on PATH."""
    own = Path(sys.prefix) / "bin" / "mpiexec"
    found = str(own) if own.is_file() else shutil.which("mpiexec")
    if found is None:
        raise InputError(f"--ranks needs mpiexec, and there is none; install one: {REMEDY}")
    if find_spec("mpi4py") is None:
        raise InputError(f"--ranks needs the package mpi4py; install it: {REMEDY}")
    return found


def threads_per_rank(group: Group) -> int:
    """Return the number of this host's cores per rank on it."""
    mine = cores()
    hosts = group.gather((socket.gethostname(), mine))
    sharing = sum(host == socket.gethostname() and not mine.isdisjoint(theirs) for host, theirs in hosts)
    return max(1, len(mine) // sharing)


def cores() -> frozenset[int]:
    """Return the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))
