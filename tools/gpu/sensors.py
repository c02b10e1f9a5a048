"""Clock, power and temperature of the GPU during a row, sampled by nvidia-smi."""

from __future__ import annotations

import atexit
import shutil
import subprocess
from statistics import mean
from threading import Lock, Thread

PERIOD_MS = 100
FIELDS = {"clocks.sm": "SM MHz", "power.draw": "W", "temperature.gpu": "C"}
Sample = tuple[float, ...]


class Sensors:
    """Samples of GPU 0 from now on; none without nvidia-smi."""

    def __init__(self) -> None:
        self._samples: list[Sample] = []
        self._lock = Lock()
        found = shutil.which("nvidia-smi")
        if found is None:
            return
        command = [found, f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits", "-i", "0"]
        process = subprocess.Popen(
            [*command, "-lms", str(PERIOD_MS)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        atexit.register(process.kill)
        Thread(target=self._read, args=(process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            sample = numbers(line)
            if sample is not None:
                with self._lock:
                    self._samples.append(sample)

    def take(self) -> dict[str, float]:
        """Means since the last call; empty without a sample."""
        with self._lock:
            samples, self._samples = self._samples, []
        return dict(zip(FIELDS.values(), map(mean, zip(*samples)))) if samples else {}


def numbers(line: str) -> Sample | None:
    """The fields of a line, or None if the GPU does not report one."""
    try:
        found = tuple(float(word) for word in line.split(","))
    except ValueError:
        return None
    return found if len(found) == len(FIELDS) else None
