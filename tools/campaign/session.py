"""A run of a campaign: its seed, its time, its counts, and its findings.

campaign = Campaign.from_arguments(options)
for index, rng in campaign.inputs():     until the time is up or all are done; a seed always gives the same inputs
    ...
    campaign.count("runs")
    campaign.report(index, "the losses differ", {"net.prototxt": text})
sys.exit(campaign.finish())
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import itertools
import random
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of every campaign."""
    parser.add_argument("--seconds", type=float, default=60.0, help="how long new inputs are begun (60)")
    parser.add_argument("--count", type=int, metavar="N", help="begin N inputs, however long they take")
    parser.add_argument("--seed", type=int, help="of all random choices (a new one, which is printed)")
    parser.add_argument("--only", type=int, metavar="N", help="input N of the seed alone, to repeat a finding")
    parser.add_argument("--out", type=Path, default=Path("build/campaign"), help="folder of what was found")


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """End the process with its stack on standard error if the block takes longer, in native code too."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


class Campaign:
    """name     name of the tool, in file names
    out      folder for the inputs that show a finding
    count    number of inputs to begin, instead of a time
    """

    def __init__(
        self, name: str, seconds: float, seed: int | None, out: Path, only: int | None = None, count: int | None = None
    ):
        self.name, self.seconds, self.out, self.only, self.most = name, seconds, out, only, count
        self.seed = secrets.randbelow(10**9) if seed is None else seed
        self.counts: Counter[str] = Counter()
        self.findings = 0
        self.words = ""  # other options that determine its inputs
        self._begin = time.monotonic()
        print(f"{name}: seed {self.seed}", flush=True)

    @staticmethod
    def from_arguments(name: str, options: argparse.Namespace) -> Campaign:
        return Campaign(name, options.seconds, options.seed, options.out, options.only, options.count)

    def rng(self, index: int) -> random.Random:
        """The random generator of one input, independent of other inputs."""
        return random.Random(f"{self.seed}/{index}")

    def inputs(self) -> Iterator[tuple[int, random.Random]]:
        """Yield the number of each input and its random generator: `count` inputs, or until the time is up; at least
        one."""
        if self.only is not None:
            yield self.only, self.rng(self.only)
            return
        for index in itertools.count():
            if index and self._is_over(index):
                return
            yield index, self.rng(index)

    def _is_over(self, index: int) -> bool:
        if self.most is not None:
            return index >= self.most
        return time.monotonic() - self._begin >= self.seconds

    def note(self, index: int) -> None:
        """Keep the number of an input in a file until finish(); it remains if the input hangs or kills this process."""
        self.out.mkdir(parents=True, exist_ok=True)
        self._note.write_text(f"--seed {self.seed} --only {index}{self.words}\n")

    @property
    def _note(self) -> Path:
        return self.out / f"{self.name}-{self.seed}-unfinished"

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] += number

    def report(self, index: int, what: str, files: Mapping[str, str | bytes]) -> None:
        """Print a finding, and save the files that show it."""
        self.findings += 1
        folder = self.out / f"{self.name}-{self.seed}-{index}"
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        print(
            f"FOUND  {what}\n       files in {folder}; repeat with --seed {self.seed} --only {index}{self.words}",
            flush=True,
        )

    def finish(self) -> int:
        """Print the summary and return the exit status."""
        self._note.unlink(missing_ok=True)
        counts = ", ".join(f"{number:,} {what}" for what, number in self.counts.items())
        seconds = time.monotonic() - self._begin
        print(f"{self.name}: {counts}, {self.findings} findings in {seconds:.0f} s (seed {self.seed})", flush=True)
        sys.stdout.flush()
        return 1 if self.findings else 0
