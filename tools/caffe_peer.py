"""Times training steps of a net in BVLC Caffe, for tools/bench_cpu.py.  Needs a `caffe` binary on the path.

    python tools/caffe_peer.py NET.prototxt --steps 10

Runs `caffe time`, which times forward and backward in whole milliseconds, without the update.  Prints a line of JSON:
`seconds` of each step, and `bytes`, the peak resident set of Caffe.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess

STEP_LINE = re.compile(r"Iteration: \d+ forward-backward time: ([\d.e+]+) ms")


def seconds_per_step(log: str) -> list[float]:
    """The time of each step in the output of `caffe time`."""
    return [float(milliseconds) / 1e3 for milliseconds in STEP_LINE.findall(log)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", help="a net, as prototxt")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    binary = shutil.which("caffe")
    if binary is None:
        parser.error("there is no `caffe` on the path")
    threads = str(options.threads)
    ended = subprocess.run(
        [binary, "time", f"-model={options.net}", f"-iterations={options.steps}", "-phase=TRAIN"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads},
        check=False,
    )
    seconds = seconds_per_step(ended.stdout)
    if ended.returncode or len(seconds) != options.steps:
        raise SystemExit(f"{ended.stdout}caffe ended with {ended.returncode} after {len(seconds)} steps")
    peak_bytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    note = "forward and backward, without the update"
    print(json.dumps({"seconds": seconds, "bytes": peak_bytes, "is": "caffe", "note": note}))


if __name__ == "__main__":
    main()
