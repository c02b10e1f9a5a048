"""Interrupts training at random moments and resumes it until it is done: the bits must be those of a single run.

    python tools/crash.py [--seconds 60 | --count N] [--seed S] [--only N]

A chain trains the digits with a random rule and snapshot format.  Each child is a process of `layermem train` with its
own budget that resumes from the newest snapshot.  It gets SIGKILL, SIGTERM, SIGINT or SIGHUP while it starts, iterates
or writes a snapshot, has a disk that is full after some bytes of a file (RLIMIT_FSIZE), or loses the folder of its
snapshots to a file of the same name.  The last child is not disturbed.

findings   files of the last snapshot that differ from those of an uninterrupted run
           a solver state that cannot be read after a child has ended
           a traceback, or an exit code that does not belong to the event
           a file in the folder, after the last child, that belongs to no snapshot
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from layermem.cli import main as layermem_main
from layermem.errors import InputError
from layermem.solver.snapshot import read_snapshot
from tools.campaign.session import Campaign, add_arguments

DIGITS = Path(__file__).resolve().parents[1] / "prototxt" / "digits" / "train_val.prototxt"
LAST = 16  # iterations of a chain
MAX_CHILDREN = 12  # most children of a chain; the last is not disturbed
LIMIT = 300.0  # seconds for one child, on a machine that also does other work
SLOWEST = 0.03  # seconds between a snapshot and a signal: longer than an iteration and a snapshot
PROCESSES = multiprocessing.get_context("fork")
SNAPSHOT = re.compile(r"run_iter_\d+\.(?:caffemodel|solverstate)(?:\.h5)?(?:\.json)?")

# event -> exit codes of its child; 0 is also allowed, if the event came too late or changes nothing
EVENTS: dict[str, tuple[int, ...]] = {
    "SIGKILL": (-signal.SIGKILL,),
    "SIGTERM": (-signal.SIGTERM, 143),
    "SIGINT": (130,),
    "two SIGINT": (130,),
    "SIGHUP": (-signal.SIGHUP,),
    "full disk": (2,),
    "no folder": (2,),
    "nothing": (),
}
SIGNALS = {"SIGKILL": 1, "SIGTERM": 1, "SIGINT": 1, "two SIGINT": 2, "SIGHUP": 1}  # number of signals sent
TO_SEND = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # signals that can be blocked

RULES = ('type: "SGD" momentum: 0.9', 'type: "Adam" momentum: 0.9 momentum2: 0.99', 'type: "AdaDelta" momentum: 0.9')

MEMORY = ([], ["--budget", "80%"], ["--budget", "40%", "--spill", "."], ["--strategy", "hybrid", "--spill", "."])


@dataclass(frozen=True)
class Setting:
    """A solver for the digits."""

    rule: str
    every: int  # iterations between snapshots
    hdf5: bool

    @staticmethod
    def random(rng: random.Random) -> Setting:
        return Setting(rng.choice(RULES), rng.choice((1, 3)), rng.random() < 0.3)

    @property
    def text(self) -> str:
        return (
            f'net: "{DIGITS}"\n{self.rule}\nlr_policy: "step" gamma: 0.5 stepsize: 5 base_lr: 0.01\nmax_iter: {LAST}\n'
            f"test_iter: 1 test_interval: 4\nsnapshot: {self.every} random_seed: 3\n"
            f'snapshot_prefix: "out/run"\n{"snapshot_format: HDF5" if self.hdf5 else ""}\n'
        )

    @property
    def end(self) -> str:
        return ".h5" if self.hdf5 else ""


@dataclass
class Chain:
    """The children that train in one folder."""

    folder: Path
    setting: Setting

    @cached_property
    def out(self) -> Path:
        (self.folder / "out").mkdir(parents=True)
        (self.folder / "solver.prototxt").write_text(self.setting.text)
        return self.folder / "out"

    def states(self) -> list[Path]:
        """All solver states, the newest last; InputError for one that cannot be read."""
        found = sorted(self.out.glob(f"run_iter_*.solverstate{self.setting.end}"), key=iteration_of)
        before = Path.cwd()
        os.chdir(self.folder)
        try:
            for path in found:
                read_snapshot(str(path))
        finally:
            os.chdir(before)
        return found

    def start(self, words: list[str], file_limit: int | None = None) -> multiprocessing.process.BaseProcess:
        """Start a child that resumes from the newest state."""
        resumed = [f"--snapshot={path}" for path in self.states()[-1:]]
        child = PROCESSES.Process(target=train, args=(self.folder, [*words, *resumed], file_limit))
        before = signal.pthread_sigmask(signal.SIG_BLOCK, TO_SEND)  # until train() can answer them
        try:
            child.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return child

    def result(self) -> dict[str, bytes]:
        """The files of the last snapshot."""
        return {path.name: path.read_bytes() for path in sorted(self.out.glob(f"run_iter_{LAST}.*"))}

    @property
    def said(self) -> str:
        """The standard error of the last child; empty if the child ended before it opened it."""
        path = self.folder / "stderr"
        return path.read_text(errors="replace") if path.exists() else ""


def iteration_of(path: Path) -> int:
    return int(path.name.split("_")[-1].split(".")[0])


def train(folder: Path, words: list[str], file_limit: int | None) -> None:
    """Run the child: `layermem train`."""
    code = 130  # exit code of a KeyboardInterrupt around main()
    try:
        os.chdir(folder)
        os.dup2(os.open("stderr", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False, errors="backslashreplace")
        if file_limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, TO_SEND)
        code = layermem_main(["train", "--solver", "solver.prototxt", *words])
    except Exception:
        sys.excepthook(*sys.exc_info())
        code = 1
    finally:
        os._exit(code)


# -- events ----------------------------------------------------------------------------------------------------------


def wait_for_progress(chain: Chain, child: multiprocessing.process.BaseProcess, rng: random.Random) -> None:
    """Wait for some more snapshots and part of an iteration; occasionally for a moment of the start."""
    if rng.random() < 0.2:
        time.sleep(rng.uniform(0, 0.3))
        return
    pattern = f"run_iter_*.solverstate{chain.setting.end}"
    enough = len([*chain.out.glob(pattern)]) + rng.randint(1, 3)
    while child.is_alive() and len([*chain.out.glob(pattern)]) < enough:
        time.sleep(0.0005)
    time.sleep(rng.uniform(0, SLOWEST))


def exchange(one: Path, other: Path) -> None:
    """Exchange two names atomically, so that at no moment a child can create one of them."""
    here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if ctypes.CDLL(None, use_errno=True).renameat2(here, os.fsencode(one), here, os.fsencode(other), swap):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), str(one), None, str(other))


def run_child(chain: Chain, event: str, rng: random.Random) -> int | None:
    """Run one child and its event; return the exit code, or None for a child that had to be killed."""
    words = ["--threads", str(rng.randint(1, 2)), *rng.choice(MEMORY)]
    child = chain.start(words, rng.randrange(1, 500_000) if event == "full disk" else None)
    if event in SIGNALS or event == "no folder":
        wait_for_progress(chain, child, rng)
    if event == "no folder":
        kept = chain.folder / "kept"
        kept.touch()
        exchange(kept, chain.out)
        child.join(LIMIT)
        exchange(kept, chain.out)
        kept.unlink()
    for _ in range(SIGNALS.get(event, 0)):
        if child.is_alive() and child.pid is not None:
            os.kill(child.pid, getattr(signal, event.split()[-1]))
    child.join(LIMIT)
    if child.is_alive():
        child.kill()
        child.join()
        return None
    return child.exitcode


def try_chain(campaign: Campaign, index: int, chain: Chain, expected: dict[str, bytes], rng: random.Random) -> None:
    history: list[str] = []

    def report(what: str) -> None:
        files = {"solver.prototxt": chain.setting.text, "stderr.txt": chain.said, "events.txt": "\n".join(history)}
        campaign.report(index, f"{what}, after {', '.join(history)}", files)

    for number in range(MAX_CHILDREN):
        event = rng.choice([*EVENTS]) if number + 1 < MAX_CHILDREN else "nothing"
        code = run_child(chain, event, rng)
        history.append(f"{event} ({code})")
        campaign.count(event)
        if code is None or code not in (0, *EVENTS[event]) or "Traceback" in chain.said:
            report(f"exit code {code}" if code is not None else f"no end in {LIMIT:g} s")
            return
        try:
            chain.states()
        except InputError as error:
            report(f"a damaged snapshot: {error}")
            return
        if event == "nothing":
            break
    if chain.result() != expected:
        report("the last snapshot has other bits than that of an uninterrupted run")
    left = [path.name for path in (*chain.out.iterdir(), *chain.folder.iterdir()) if not is_expected(path)]
    if left:
        report(f"left behind: {', '.join(left)}")


def is_expected(path: Path) -> bool:
    return bool(SNAPSHOT.fullmatch(path.name)) or path.name in ("out", "solver.prototxt", "stderr")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    options = parser.parse_args()
    options.out = options.out.resolve()
    campaign = Campaign.from_arguments("crash", options)
    whole: dict[Setting, dict[str, bytes]] = {}
    with tempfile.TemporaryDirectory(prefix="layermem-") as name:
        for index, rng in campaign.inputs():
            setting = Setting.random(rng)
            if setting not in whole:
                uninterrupted = Chain(Path(name) / f"whole{len(whole)}", setting)
                uninterrupted.start([]).join(LIMIT)
                whole[setting] = uninterrupted.result()
                if not whole[setting]:
                    campaign.report(index, f"an uninterrupted run ends without its snapshot: {uninterrupted.said}", {})
                    break
            campaign.count("chains")
            try_chain(campaign, index, Chain(Path(name) / str(index), setting), whole[setting], rng)
    return campaign.finish()


if __name__ == "__main__":
    sys.exit(main())
