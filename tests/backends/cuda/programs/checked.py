"""Trains a net on device cuda after its self-test, and prints as JSON what was said and what came of it.

    python checked.py '{"net": .., "precision": "tf32", "storage": "fp32", "seconds": 60}'

`seconds` and `start` are the limits of a launch of the self-test and of what is before one, `strategies` are those of
one solver after the other.  The answer has the notes of each, the title of its device, a hash of all parameters, and
whether as many bytes were used as predicted; or the error.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path

from layermem.backends.base import get_device
from layermem.backends.cuda.checks import checked
from layermem.errors import LayermemError
from layermem.interactive.solver import Solver
from layermem.report.events import Event, Note
from tests.nets import solver_file


def train(job: dict, strategy: str) -> dict:
    notes: list[str] = []

    def log(event: Event) -> None:
        notes.extend([event.text] if isinstance(event, Note) else [])

    device = get_device("cuda", precision=job["precision"], storage=job.get("storage", "fp32"))
    with tempfile.TemporaryDirectory() as folder:
        file = solver_file(job["net"], Path(folder))
        with Solver(file, device=device, strategy=strategy, log=log) as solver:
            solver.step(2)
            blobs = [blob.tobytes() for blobs in solver.parameters().values() for blob in blobs]
            return {
                "notes": notes,
                "title": device.title,
                "parameters": hashlib.sha256(b"".join(blobs)).hexdigest(),
                "measured": solver.runner.measured_peak_bytes == solver.program.arena_bytes,
                "loss": solver.loss,
            }


def main() -> None:
    job = json.loads(sys.argv[1])
    checked.LAUNCH_SECONDS, checked.START_SECONDS = job.get("seconds", 60.0), job.get("start", 600.0)
    try:
        print(json.dumps([train(job, strategy) for strategy in job.get("strategies", ["liveness"])]))
    except LayermemError as error:
        print(json.dumps({"error": str(error), "exit_code": error.exit_code}))


main()
