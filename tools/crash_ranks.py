"""Kills one of several ranks that train under mpiexec: after a restart the bits must be those of one process.

    python tools/crash_ranks.py [--seconds 60 | --count N] [--seed S] [--only N]

One process trains the digits in SETTING.  Each input of the campaign does the same with jobs of 1, 2 or 4 ranks, each
with its own strategy and budget, that begin at the newest snapshot (`--restart`).  A random rank of a job gets SIGKILL
at a random moment; the last job is not disturbed.

findings   files of the last snapshot that differ from those of the one process
           a job that continues for more than SECONDS after one of its ranks was killed
           an exit code other than 0 of a job that is not disturbed
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.campaign.session import Campaign, add_arguments

ROOT = Path(__file__).resolve().parents[1]
LAST, SECONDS, MAX_JOBS, LIMIT = 20, 5.0, 4, 300.0
SETTING = f"""net: "{ROOT}/prototxt/digits/train_val.prototxt" type: "Adam" momentum: 0.9 momentum2: 0.999
base_lr: 0.002 lr_policy: "fixed" clip_gradients: 0.5 max_iter: {LAST} iter_size: 4 random_seed: 3 display: 0
snapshot: 3 snapshot_prefix: "run"
"""
PLANS = (
    [],
    ["--strategy", "recompute"],
    ["--budget", "50%", "--slices", "auto"],
    ["--budget", "30%", "--spill", ".", "--slices", "auto"],
)


def start(folder: Path, size: int, plan: list[str]) -> subprocess.Popen[str]:
    """Start a job of `size` ranks in its own session."""
    (folder / "solver.prototxt").write_text(SETTING, encoding="utf-8")
    words = ["train", "--solver", "solver.prototxt", "--device", "cpu", "--quiet", "--restart", "--ranks", str(size)]
    return subprocess.Popen(
        [sys.executable, "-m", "layermem", *words, *plan],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(job: subprocess.Popen[str], seconds: float) -> str:
    """Wait for the end of a job and return its fault, or ""; a job that takes longer is killed with its ranks."""
    try:
        _, said = job.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        for process in (*ranks_of(job.pid), job.pid):
            os.kill(process, signal.SIGKILL)
        job.communicate()
        return f"no end in {seconds:g} s"
    return f"exit code {job.returncode}: {said[-300:]}" if job.returncode else ""


def ranks_of(process: int) -> list[int]:
    """The Python processes among the descendants of a job, except the one that starts the launcher."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(path.parent.name))
    descendants = [process]
    for each in descendants:
        descendants += children.get(each, [])
    return [each for each in descendants[1:] if is_rank(each)]


def is_rank(process: int) -> bool:
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[0] == os.fsencode(sys.executable) and b"layermem" in words


def snapshot(folder: Path) -> dict[str, bytes]:
    """The files of the last iteration, except the one with the number of ranks."""
    paths = sorted(folder.glob(f"run_iter_{LAST}.*"))
    return {path.name: path.read_bytes() for path in paths if path.suffix != ".json"}


def kill_one(job: subprocess.Popen[str], rng: random.Random) -> bool:
    """Kill a random rank at a random moment; return whether there was one."""
    time.sleep(rng.uniform(0.2, 4.0))
    ranks = ranks_of(job.pid)
    if job.poll() is not None or not ranks:
        return False
    os.kill(rng.choice(ranks), signal.SIGKILL)
    return True


def try_jobs(campaign: Campaign, index: int, folder: Path, expected: dict[str, bytes], rng: random.Random) -> None:
    campaign.count("trainings")
    for number in range(MAX_JOBS):
        left_alone = number + 1 == MAX_JOBS
        size, plan = rng.choice((1, 2, 4) if left_alone else (2, 4)), rng.choice(PLANS)
        job = start(folder, size, plan)
        killed = not left_alone and kill_one(job, rng)
        campaign.count("killed ranks", killed)
        wrong = finish(job, SECONDS if killed else LIMIT)
        if wrong and not (killed and wrong.startswith("exit code")):
            campaign.report(index, f"{size} ranks {' '.join(plan)}: {wrong}", {"solver.prototxt": SETTING})
            return
    if snapshot(folder) != expected:
        what = "the last snapshot has other bits than that of one process"
        campaign.report(index, what, {"solver.prototxt": SETTING, **snapshot(folder)})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    campaign = Campaign.from_arguments("crash_ranks", parser.parse_args())
    with tempfile.TemporaryDirectory(prefix="layermem-") as name:
        whole = Path(name) / "whole"
        whole.mkdir()
        if wrong := finish(start(whole, 1, []), LIMIT):
            raise SystemExit(f"one process: {wrong}")
        for index, rng in campaign.inputs():
            folder = Path(name) / str(index)
            folder.mkdir()
            try_jobs(campaign, index, folder, snapshot(whole), rng)
    return campaign.finish()


if __name__ == "__main__":
    sys.exit(main())
