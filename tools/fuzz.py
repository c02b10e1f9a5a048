"""Reads mutated files of every kind that layermem reads: each must be read, or refused with an error message.

    python tools/fuzz.py [--seconds 60 | --count N] [--seed S] [--only N] [--kinds net,solver,...]

The kinds and their readers are in tools/campaign/file_kinds.py, the mutations in tools/campaign/mutations.py.  A child
process reads one input after the other, with 1 GiB of address space more than at its start.

findings   an exception that is no LayermemError, MemoryError included
           an input that takes more than CPU_SECONDS, gives no answer in WAIT seconds, or ends the process; except an
           LMDB with damaged pages, which liblmdb maps and trusts: such deaths are only counted
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from layermem.errors import LayermemError
from tools.campaign.file_kinds import KINDS, contents, corpus
from tools.campaign.mutations import mutate_bytes, mutate_text
from tools.campaign.session import Campaign, add_arguments

CPU_SECONDS = 20  # CPU seconds of all threads for one input: 10 s on two cores
WAIT = 120.0  # seconds until an input counts as hanging
MEMORY = 1 << 30  # bytes of address space in addition to a fresh child's
PER_CHILD = 400  # inputs per child, so that leftovers of earlier inputs are limited
PROCESSES = multiprocessing.get_context("fork")


class Mutator:
    """Generates inputs by number: the kind and the bytes of a mutated file."""

    def __init__(self, valid: dict[str, list[bytes]], kinds: list[str]):
        self.valid, self.kinds = valid, kinds

    def input(self, rng: random.Random) -> tuple[str, bytes]:
        name = rng.choice(self.kinds)
        seeds = self.valid[name]
        raw = rng.choice(seeds)
        if KINDS[name].text and rng.random() < 0.85:
            texts = [seed.decode() for seed in seeds]
            return name, mutate_text(rng, raw.decode(), texts).encode(errors="replace")
        return name, mutate_bytes(rng, raw, seeds)


def read(name: str, raw: bytes, folder: Path) -> str:
    """Read an input: "read", "refused", or the traceback of another exception."""
    path = folder / KINDS[name].path
    before = path.read_bytes() if path.exists() else None
    path.write_bytes(raw)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            KINDS[name].read(folder)
        return "read"
    except LayermemError:
        return "refused"
    except BaseException:
        return traceback.format_exc()
    finally:
        if before is not None:
            path.write_bytes(before)


def serve(requests: Connection, folder: Path) -> None:
    """Run the child, which reads inputs until there are no more."""
    os.chdir(folder)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    while True:
        name, raw = requests.recv()
        used = math.ceil(time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (used + CPU_SECONDS, resource.RLIM_INFINITY))
        requests.send(read(name, raw, folder))


class Child:
    """A process that reads inputs, replaced whenever it ends."""

    def __init__(self, folder: Path):
        self.folder, self.inputs = folder, 0
        self.requests, theirs = PROCESSES.Pipe()
        self.process = PROCESSES.Process(target=serve, args=(theirs, folder), daemon=True)
        self.process.start()
        theirs.close()

    def read(self, name: str, raw: bytes) -> str:
        """Return the result of read(), or how the process ended."""
        self.inputs += 1
        self.requests.send((name, raw))
        try:
            if self.requests.poll(WAIT):
                return str(self.requests.recv())
        except EOFError:
            self.process.join()
            if self.process.exitcode == -signal.SIGXCPU:
                return f"more than {CPU_SECONDS} s of CPU time"
            return f"the process ended with {self.process.exitcode}"
        self.close()
        return f"no answer in {WAIT:g} s"

    def close(self) -> None:
        self.process.kill()
        self.process.join()


def fuzz(campaign: Campaign, folder: Path, kinds: list[str]) -> None:
    mutator, child = Mutator(contents(folder), kinds), None
    for index, rng in campaign.inputs():
        if child is None or not child.process.is_alive() or child.inputs >= PER_CHILD:
            if child is not None:
                child.close()
            restore(folder, mutator.valid)
            child = Child(folder)
        name, raw = mutator.input(rng)
        outcome = child.read(name, raw)
        if outcome in ("read", "refused"):
            campaign.count(outcome)
        elif outcome.startswith("the process") and KINDS[name].library:
            campaign.count("deaths in liblmdb")
        else:
            campaign.count("failed")
            campaign.report(
                index, f"{name}: {last_line(outcome)}", {"traceback.txt": outcome, Path(KINDS[name].path).name: raw}
            )
    if child is not None:
        child.close()


def restore(folder: Path, valid: dict[str, list[bytes]]) -> None:
    """Write the valid files again where a child that ended left its input."""
    for name, kind in KINDS.items():
        if (folder / kind.path).exists():
            (folder / kind.path).write_bytes(valid[name][0])


def last_line(outcome: str) -> str:
    """The exception and its place."""
    lines = outcome.rstrip().splitlines()
    places = [line.strip() for line in lines if line.startswith("  File ")]
    return f"{lines[-1][:200]}  {places[-1] if places else ''}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--kinds", default=",".join(KINDS), help="commas between (all)")
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"there is no kind {', '.join(unknown)}; choose from {', '.join(KINDS)}")
    options.out = options.out.resolve()
    campaign = Campaign.from_arguments("fuzz", options)
    if len(kinds) < len(KINDS):
        campaign.words = f" --kinds '{options.kinds}'"
    with tempfile.TemporaryDirectory(prefix="layermem-") as name:
        # A separate process, so that this one forks without threads.
        maker = PROCESSES.Process(target=corpus, args=(Path(name),))
        maker.start()
        maker.join()
        fuzz(campaign, Path(name), kinds)
    return campaign.finish()


if __name__ == "__main__":
    sys.exit(main())
