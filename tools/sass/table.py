"""The model's rows as text to read, and as a file to compare with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tools.sass.engine import OPERATIONS, Row
from tools.sass.gpus import Gpu
from tools.sass.net import MemoryTime, OpTime, by_kind, host_gap
from tools.sass.record import digest_of

DIGEST = "# source "  # a line of the file: a module, and what stands for its source (record.py)
COLUMNS = (
    "precision", "kernel", "instructions", "products", "per_product", "registers", "shared", "blocks", "cycles",
    "tflops", "busiest", "busy",
)  # fmt: skip

Saved = Mapping[str, str]  # a row of the file, by column


def table(rows: Sequence[Row], before: Mapping[tuple[str, str], Saved]) -> Iterator[str]:
    """A line for each kernel; with those of another state, their rates and the ratio."""
    head = f"{'':27}{'kernel':32}{'instr':>7}{'/product':>9}{'regs':>5}{'KiB':>5}"
    head += f"{'blocks':>7}{'cycles':>8}{'TFLOP/s':>8}"
    yield head + f"  {'busiest':14}" + ("  before  ratio" if before else "")
    for row in rows:
        line = (
            f"{row.precision:27}{row.kernel:32}{row.instructions:7.0f}{row.per_product:9.2f}{row.registers:5}"
            f"{row.shared / 1024:5.0f}{row.blocks:7}{row.cycles:8.0f}{row.tflops:8.1f}"
            f"  {row.busy[0]:9}{row.busy[1]:4.0%} "
        )
        if (row.precision, row.kernel) in before:
            was = float(before[row.precision, row.kernel]["tflops"])
            line += f"  {was:6.1f} {row.tflops / was:6.2f}"
        yield line.rstrip()


def written(rows: Sequence[Row], gpu: Gpu, modules: Iterable[str] = ()) -> str:
    """`modules` are those of the rows."""
    lines = [
        f"# modelled for sm_{gpu.architecture} ({gpu.name}) at {gpu.clock / 1e9:.3f} GHz by tools/sass_model.py",
        *(f"{DIGEST}{module} {digest_of(module)}" for module in sorted(modules)),
        "\t".join(COLUMNS),
    ]
    for row in rows:
        cells = (
            row.precision, row.kernel, f"{row.instructions:.1f}", f"{row.products:.0f}", f"{row.per_product:.2f}",
            row.registers, row.shared, row.blocks, f"{row.cycles:.0f}", f"{row.tflops:.1f}", row.busy[0],
            f"{row.busy[1]:.2f}",
        )  # fmt: skip
        lines.append("\t".join(map(str, cells)))
    return "\n".join(lines) + "\n"


def read_digests(path: Path) -> dict[str, str]:
    """What a file of --tsv says of the sources that it was made from, by module."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.removeprefix(DIGEST).split() for line in lines if line.startswith(DIGEST))


def read_rows(path: Path) -> dict[tuple[str, str], Saved]:
    """Rows of a file of --tsv by precision and kernel."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    names = lines[0].split("\t")
    saved = (dict(zip(names, line.split("\t"), strict=True)) for line in lines[1:])
    return {(row["precision"], row["kernel"]): row for row in saved}


def ops_table(times: Sequence[OpTime]) -> Iterator[str]:
    """A line for each op, the slowest first, and the totals."""
    yield f"{'op':44}{'kind':9}{'ms':>8}{'TFLOP/s':>8}  {'bound by':9} kernel"
    for each in sorted(times, key=lambda each: -each.seconds):
        rate = f"{each.flops / each.seconds / 1e12:8.0f}" if each.kind in OPERATIONS else f"{'':8}"
        yield f"{each.name[:43]:44}{each.kind:9}{1e3 * each.seconds:8.3f}{rate}  {each.limit:9} {each.kernel}".rstrip()
    totals = by_kind(times)
    parts = ", ".join(f"{kind} {1e3 * seconds:.1f}" for kind, seconds in totals.items())
    yield f"{1e3 * sum(totals.values()):.1f} ms a step: {parts}"


def memory_table(rows: Sequence[MemoryTime]) -> Iterator[str]:
    """A line for each kernel that DRAM bounds."""
    head = f"{'launches':>9}{'GB':>8}{'ms':>8}{'TB/s':>6}{'B/thread':>9}{'blocks':>7}{'MB in flight':>13}"
    yield f"{'bound by DRAM':32}{head}"
    for row in rows:
        cells = f"{row.launches:9}{row.moved / 1e9:8.2f}{1e3 * row.seconds:8.3f}{row.moved / row.seconds / 1e12:6.2f}"
        cells += f"{row.thread_bytes:9}{row.blocks:7}{row.in_flight / 1e6:13.2f}"
        yield f"{row.kernel:32}{cells}"


def totals_table(nets: Mapping[tuple[str, str], Sequence[OpTime]]) -> Iterator[str]:
    """A line for each net and precision: milliseconds of a step, and of its parts."""
    yield f"{'':33}{'ms':>7}{'fprop':>8}{'dgrad':>8}{'wgrad':>8}{'rest':>8}   waits for the host, us:"
    yield f"{'net':16}{'':17}{'':39}   launch by launch  captured"
    for (net, precision), times in nets.items():
        totals = by_kind(times)
        cells = "".join(f"{1e3 * seconds:8.1f}" for seconds in totals.values())
        waits = f"{1e6 * host_gap(times, False):19.0f}{1e6 * host_gap(times, True):10.0f}"
        yield f"{net:16}{precision:17}{1e3 * sum(totals.values()):7.1f}{cells}{waits}"
