"""Trains nets on several numbers of ranks under an MPI launcher, and compares what they write bit by bit.

    python tools/prove_ranks.py [--mpiexec PATH ...] [--kills 20] [--only digits] [--device cpu]

equal bits   each net is trained by 1, 2 and 4 ranks with 4 micro-batches an iteration, under several
             strategies and budgets, also other budgets on other ranks; sha256 of weights and of optimizer state
kills        a random rank gets SIGKILL at a random time: the job has to end within SECONDS; `--restart` with another
             number of ranks goes on, and ends at the same bits

mpiexec is that of the environment of this Python; more may be given, each run with the Python beside it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ITERATIONS, MICRO_BATCHES, SECONDS = 20, 4, 5.0
DIGITS = ROOT / "prototxt" / "digits" / "train_val.prototxt"
NORMS = f"""
layer {{ name: "data" type: "Data" top: "data" top: "label" transform_param {{ scale: 0.0625 mirror: true }}
        data_param {{ source: "{DIGITS.parent}/digits_train_lmdb" batch_size: 60 backend: LMDB }} }}
layer {{ name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
        convolution_param {{ num_output: 16 kernel_size: 3 pad: 1 weight_filler {{ type: "msra" }} }} }}
layer {{ name: "bn1" type: "BatchNorm" bottom: "conv1" top: "conv1" }}
layer {{ name: "scale1" type: "Scale" bottom: "conv1" top: "conv1" scale_param {{ bias_term: true }} }}
layer {{ name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }}
layer {{ name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param {{ kernel_size: 2 stride: 2 }} }}
layer {{ name: "drop1" type: "Dropout" bottom: "pool1" top: "pool1" dropout_param {{ dropout_ratio: 0.3 }} }}
layer {{ name: "ip1" type: "InnerProduct" bottom: "pool1" top: "ip1"
        inner_product_param {{ num_output: 10 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip1" bottom: "label" top: "loss" }}
"""
SOLVERS = {
    "digits": f'net: "{DIGITS}" base_lr: 0.05 lr_policy: "fixed" momentum: 0.9 weight_decay: 0.0005',
    "norms": f'net_param {{ name: "norms" {NORMS} }} type: "Adam" base_lr: 0.002 lr_policy: "fixed" momentum: 0.9 '
    "momentum2: 0.999 clip_gradients: 0.5",
}
SOLVERS["resnet20"] = (
    f'net: "{ROOT}/prototxt/resnet20/train_val.prototxt" base_lr: 0.01 lr_policy: "fixed" momentum: 0.9'
)
OPTIONS = {"resnet20": ("--data", "noise", "--batch", "8", "--iterations", "5")}  # of a net; its data are not there
SLICED = ("--slices", "auto")  # where a budget is below what one layer needs
PLANS: tuple[tuple[str, ...], ...] = (
    ("--strategy", "liveness"),
    ("--strategy", "recompute"),
    ("--strategy", "auto"),
    ("--strategy", "auto", "--budget", "100%"),
    ("--strategy", "auto", "--budget", "50%", *SLICED),
    ("--strategy", "auto", "--budget", "30%", "--spill", ".", *SLICED),
    ("--strategy", "recompute", "--budget", "70%"),
)


class Launcher:
    """An mpiexec, and the Python of the same environment."""

    def __init__(self, mpiexec: Path):
        self.mpiexec, python = mpiexec, mpiexec.parent / "python"
        self.python = python if python.exists() else Path(sys.executable)
        text = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=False).stdout
        self.name = "Open MPI" if "open" in text.lower() else "MPICH"

    def command(self, words: Sequence[Sequence[str]]) -> list[str]:
        """One rank for each of `words`, the options of `layermem`."""
        base = [str(self.python), "-m", "layermem"]
        if len(words) == 1:
            return [*base, *words[0]]
        more = ["--allow-run-as-root", "--oversubscribe"] if self.name == "Open MPI" else []
        command = [str(self.mpiexec), *more]
        for number, each in enumerate(words):
            command += [":"] * (number > 0) + ["-n", "1", *base, *each]
        return command


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def solver(net: str, folder: Path, snapshot: int = 0) -> Path:
    path = folder / "solver.prototxt"
    path.write_text(
        f"{SOLVERS[net]}\nmax_iter: {ITERATIONS} iter_size: {MICRO_BATCHES} random_seed: 3 display: 0\n"
        f'snapshot: {snapshot} snapshot_prefix: "run"\n',
        encoding="utf-8",
    )
    return path


def digest(folder: Path) -> str:
    """sha256 of the weights and the optimizer state of the last iteration."""
    found = hashlib.sha256()
    for end in ("caffemodel", "solverstate"):
        (path,) = folder.glob(f"run_iter_*.{end}")
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def run(launcher: Launcher, net: str, plans: Sequence[Sequence[str]], device: str) -> str:
    """The digest of a training with a rank for each of `plans`."""
    with tempfile.TemporaryDirectory(prefix="layermem-") as name:
        folder = Path(name)
        words = ["train", "--solver", str(solver(net, folder)), "--device", device, "--quiet", *OPTIONS.get(net, ())]
        command = launcher.command([[*words, *plan] for plan in plans])
        done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
        if done.returncode:
            return f"exit {done.returncode}: {done.stderr.strip()[-300:]}"
        return digest(folder)


def equal_bits(launchers: Sequence[Launcher], nets: Sequence[str], device: str) -> Iterator[str]:
    """Lines of a table: a net, its digest, and the runs that have it; a run that has not is named."""
    for net in nets:
        wanted = run(launchers[0], net, [PLANS[0]], device)
        same, others = 1, []
        runs = [(launchers[0], [plan]) for plan in PLANS[1:]]
        for launcher in launchers:
            runs += [(launcher, [plan] * size) for size in (2, 4) for plan in PLANS]
            runs += [(launcher, list(PLANS[2:4])), (launcher, list(PLANS[3:7]))]
        for launcher, plans in runs:
            found = run(launcher, net, plans, device)
            same += found == wanted
            if found != wanted:
                others.append(f"{launcher.name} {len(plans)} ranks {plans}: {found}")
        yield f"{net}: {wanted}, equal in {same} of {len(runs) + 1} runs"
        yield from others


# -- kills -------------------------------------------------------------------------------------------------------------


def ranks_of(process: int) -> list[int]:
    """The process numbers of the ranks that descend from a launcher."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(path.parent.name))
        except (OSError, ValueError):
            continue
    found, ranks = [process], []
    while found:
        each = found.pop()
        found += children.get(each, [])
        try:
            words = Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"layermem" in words and b"-m" in words and not words[0].endswith((b"mpiexec", b"mpirun", b"proxy")):
            ranks.append(each)
    return sorted(ranks)


def is_last(folder: Path) -> bool:
    return (folder / f"run_iter_{ITERATIONS}.solverstate").exists()


def kill_once(launcher: Launcher, folder: Path, size: int, rng: random.Random, device: str) -> str:
    """Start `size` ranks that go on from the newest snapshot, and kill one: what happened."""
    words = ["train", "--solver", str(folder / "solver.prototxt"), "--device", device, "--quiet", "--restart"]
    process = subprocess.Popen(
        launcher.command([words] * size),
        cwd=folder,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(rng.uniform(0.2, 4.0))
    ranks = ranks_of(process.pid)
    if not ranks or process.poll() is not None:
        process.wait()
        return "ended before"
    os.kill(rng.choice(ranks), signal.SIGKILL)
    began = time.monotonic()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        for each in (*ranks_of(process.pid), process.pid):
            os.kill(each, signal.SIGKILL)
        return "HANGS"
    seconds = time.monotonic() - began
    return "killed" if seconds <= SECONDS else f"LATE: {seconds:.1f} s"


def kills(launcher: Launcher, count: int, seed: int, device: str) -> Iterator[str]:
    """Chains of killed trainings, until `count` ranks were killed; the end of each is compared."""
    rng, done, chains, wrong = random.Random(seed), 0, 0, []
    wanted = run(launcher, "norms", [PLANS[0]], device)
    outcomes: dict[str, int] = {}
    while done < count:
        with tempfile.TemporaryDirectory(prefix="layermem-") as name:
            folder = Path(name)
            solver("norms", folder, snapshot=3)
            while not is_last(folder) and done < count:
                outcome = kill_once(launcher, folder, rng.choice((2, 4)), rng, device)
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
                done += outcome != "ended before"
            words = ["train", "--solver", str(folder / "solver.prototxt"), "--device", device, "--quiet", "--restart"]
            command = launcher.command([words] * rng.choice((1, 2, 4)))
            last = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
            for path in folder.glob("run_iter_*"):
                if f"_{ITERATIONS}." not in path.name:
                    path.unlink()
            found = digest(folder) if last.returncode == 0 else f"exit {last.returncode}: {last.stderr[-200:]}"
            chains += 1
            if found != wanted:
                wrong.append(found)
    yield f"{launcher.name}: {done} ranks killed in {chains} trainings: {outcomes}"
    yield f"{launcher.name}: {chains - len(wrong)} of {chains} end at the bits of an uninterrupted one {wrong or ''}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mpiexec", type=Path, nargs="+", default=[Path(sys.prefix) / "bin" / "mpiexec"])
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=SOLVERS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--no-bits", action="store_true", help="kills alone")
    args = parser.parse_args()
    launchers = [Launcher(path) for path in args.mpiexec]
    lines: list[str] = []
    if not args.no_bits:
        lines += equal_bits(launchers, [args.only] if args.only else list(SOLVERS), args.device)
    for launcher in launchers if args.kills else ():
        lines += kills(launcher, args.kills, args.seed, args.device)
    print("\n".join(lines))
    return int(any("exit" in line or "HANGS" in line or "LATE" in line for line in lines))


if __name__ == "__main__":
    sys.exit(main())
