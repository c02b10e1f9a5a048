"""Runs Nsight Compute on about twenty kernels: busy pipes, stall reasons, bytes of L2 and DRAM, occupancy.

Its whole output is in ncu.csv; the rows have the most important columns.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator

from layermem.backends.cuda.kernel_images.toolkit import program
from tools.gpu import process
from tools.gpu.results import Options, Results, Row

SECTIONS = ("SpeedOfLight", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "Occupancy", "WarpStateStats")
COLUMNS = {  # columns of --page raw; columns that a GPU lacks are left out
    "gpu__time_duration.sum": "time",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "SM %",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": "memory %",
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active": "tensor %",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": "tensor cycles %",
    "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active": "ALU %",
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active": "FMA %",
    "lts__t_bytes.sum": "L2 bytes",
    "dram__bytes.sum": "DRAM bytes",
    "dram__bytes_read.sum": "DRAM read",
    "dram__bytes_write.sum": "DRAM written",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": "shared wavefronts",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy %",
}
STALL, PER_ISSUE = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"
STALLS = 3  # number of stall reasons in a row
DENIED = "ERR_NVGPUCTRPERM"


def run(results: Results, options: Options) -> None:
    ncu = program("ncu")
    if ncu is None:
        results.add(kernel="", says="ncu is not here")
        return
    seconds = max(results.left, 30.0)
    results.attempt(lambda: profiled(results, ncu, seconds), most=round(seconds) + 15, part="ncu")


def profiled(results: Results, ncu: str, seconds: float) -> None:
    log = results.path.with_name("ncu.log")
    log.unlink(missing_ok=True)
    sections = [word for section in SECTIONS for word in ("--section", section)]
    target = [sys.executable, "-m", "tools.gpu.ncu_target", *["--small"] * results.options.small]
    target += [str(results.options.call.results), *map(str, results.options.earlier)]
    code = process.run([ncu, "--clock-control", "none", "--csv", "--page", "raw", *sections, *target], log, seconds)
    said = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    lines = table_of(said)
    if lines:
        results.options.call.keep({"ncu.csv": ("\n".join(lines) + "\n").encode()})
    for row in rows_of(lines):
        results.add(**row)
    if DENIED in said:
        results.add(kernel="", says="the driver lets only administrators read its counters")
    elif code != 0 or not lines:
        results.add(kernel="", says="its time was up" if code is None else process.last_lines(log))


def table_of(said: str) -> list[str]:
    """The lines of CSV in the output of ncu and the program."""
    return [line for line in said.splitlines() if line.startswith('"')]


def rows_of(lines: Iterable[str]) -> Iterator[Row]:
    """Yield a row for each kernel; the line after the titles has the units."""
    table = csv.DictReader(lines)
    units = next(table, {})
    for line in table:
        row: Row = {"kernel": line.get("Kernel Name", "?")}
        for column, title in COLUMNS.items():
            if line.get(column):
                unit = units.get(column) or ""
                row[title if unit in ("%", "") else f"{title}, {unit}"] = number(line[column])
        yield row | {"stalls": stalls(line)}


def stalls(line: Row) -> str:
    """The main stall reasons, in warps per issued instruction."""
    found = {
        column[len(STALL) : -len(PER_ISSUE)]: number(value)
        for column, value in line.items()
        if column and value and column.startswith(STALL) and column.endswith(PER_ISSUE)
    }
    most = sorted(found, key=lambda reason: found[reason], reverse=True)[:STALLS]
    return ", ".join(f"{reason} {found[reason]:.2g}" for reason in most)


def number(text: str) -> float:
    return float(text.replace(",", ""))
