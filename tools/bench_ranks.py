"""Compares sums and gathers of ranks with MPI_Allreduce and Gloo.  Prints tables in Markdown.

    python tools/bench_ranks.py [--ranks 2 4] [--mpiexec PATH] [--repeats 7]

It starts itself under the mpiexec next to Python, or that of --mpiexec.  All methods are measured in turn in one run,
and the best repetition counts.  Gloo is measured if torch can be imported.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from importlib.util import find_spec
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from layermem.distributed.collectives import AllGatherRun, ReduceScatterRun, reduce_workspace_bytes
from layermem.distributed.mpi import MpiTransport, connect
from layermem.distributed.ranks import Ranks

MIB = 1 << 20
SIZES_MIB = (25, 100)
OPEN_MPI = {  # allows more ranks than cores, and root in containers
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
OWN, ALLREDUCE, GLOO = "ordered sum, gather", "MPI_Allreduce", "Gloo"


class Bucket:
    """`nbytes` of gradients and weights of one rank, with their reduce and gather."""

    def __init__(self, transport: MpiTransport, nbytes: int):
        rank, size, count = transport.rank, transport.size, nbytes // 4
        bounds = [Ranks(rank, size, size).bounds(count)]
        self.part = np.random.default_rng(rank).normal(scale=1e-4, size=count).astype(np.float32)
        self.value = np.zeros(count, np.float32)
        workspace_bytes = reduce_workspace_bytes(bounds, rank)
        self.workspace = np.empty(workspace_bytes // 4, np.float32)
        value, own = self.value.ctypes.data, 4 * bounds[0][rank]
        self.reduce = ReduceScatterRun(
            transport, bounds, [self.part.ctypes.data], [value + own], self.workspace.ctypes.data, workspace_bytes
        )
        self.gather = AllGatherRun(transport, bounds, [value])

    def exchange(self) -> None:
        self.reduce(continues=False)
        self.gather()


def seconds_of(calls: dict[str, Callable[[], object]], barrier: Callable[[], None], repeats: int) -> dict[str, float]:
    """The shortest seconds of each call; all of them are called in turn."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(repeats + 1):  # the first one warms up
        for name, call in calls.items():
            barrier()
            began = time.perf_counter()
            call()
            barrier()
            best[name] = min(best[name], time.perf_counter() - began)
    return best


def gloo(part: np.ndarray, transport: MpiTransport, folder: str) -> Callable[[], None]:
    """An all-reduce of torch.distributed, on a copy of the gradient."""
    import torch
    import torch.distributed as distributed

    torch.set_num_threads(1)
    if not distributed.is_initialized():
        store = distributed.FileStore(f"{folder}/gloo", transport.size)
        distributed.init_process_group("gloo", store=store, rank=transport.rank, world_size=transport.size)
    tensor = torch.from_numpy(part.copy())
    return lambda: distributed.all_reduce(tensor)


def measure(repeats: int, folder: str) -> None:
    """Measure on every rank; rank 0 prints JSON."""
    transport = connect()
    from mpi4py import MPI

    barrier = MPI.COMM_WORLD.Barrier
    seconds = {}
    for mib in SIZES_MIB:
        bucket = Bucket(transport, mib * MIB)
        total = np.empty_like(bucket.part)
        calls = {
            OWN: bucket.exchange,
            ALLREDUCE: lambda part=bucket.part, total=total: MPI.COMM_WORLD.Allreduce(part, total),
        }
        if find_spec("torch") is not None:
            calls[GLOO] = gloo(bucket.part, transport, folder)
        seconds[mib] = seconds_of(calls, barrier, repeats)
    if transport.rank == 0:
        library = MPI.Get_library_version().splitlines()[0].split(",")[0].replace("Version:", "").split()
        print(json.dumps({"library": " ".join(library), "seconds": seconds}))
    transport.close()
    sys.stdout.flush()
    os._exit(0)  # threads of Gloo would continue


def launch(mpiexec: str, python: str, ranks: int, repeats: int) -> dict:
    """Start a job and return its measurements."""
    with tempfile.TemporaryDirectory() as folder:
        command = [mpiexec, "-n", str(ranks), python, __file__, "--rank-folder", folder, "--repeats", str(repeats)]
        environ = {**os.environ, **OPEN_MPI}
        ended = subprocess.run(command, capture_output=True, text=True, env=environ)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)} ended with code {ended.returncode}:\n{ended.stdout}{ended.stderr}")
    return json.loads(next(line for line in ended.stdout.splitlines() if line.startswith("{")))


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)] + [""]


def report(found: dict[int, dict]) -> str:
    """Tables of the jobs by number of ranks."""
    rows = []
    for ranks, job in found.items():
        for mib, seconds in job["seconds"].items():
            others = min(value for name, value in seconds.items() if name != OWN)
            cells = [f"{1e3 * seconds[name]:.0f}" if name in seconds else "-" for name in (OWN, ALLREDUCE, GLOO)]
            rows.append([str(ranks), mib, *cells, f"{seconds[OWN] / others:.2f}"])
    library = next(iter(found.values()))["library"]
    lines = table(["ranks", "MiB", OWN, ALLREDUCE, GLOO, "ratio to the faster other"], rows)
    return f"## {library}\n\n" + "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--mpiexec", action="append", help="beside a Python with mpi4py and numpy; may be repeated")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--rank-folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank_folder:
        measure(args.repeats, args.rank_folder)
        return
    beside = Path(sys.executable).with_name("mpiexec")
    print(f"Measured on {date.today()}, {os.cpu_count()} cores, Python {platform.python_version()}. Milliseconds.")
    for mpiexec in args.mpiexec or [str(beside) if beside.exists() else shutil.which("mpiexec") or "mpiexec"]:
        own = Path(mpiexec).with_name("python")
        python = str(own) if own.exists() else sys.executable
        print("\n" + report({ranks: launch(mpiexec, python, ranks, args.repeats) for ranks in args.ranks}))


if __name__ == "__main__":
    main()
