"""What ptxas makes of every kernel for every architecture: registers, shared memory, spills.

    python tools/ptxas_report.py             brings docs/benchmarks/ptxas.tsv up to date: modules whose source changed
    python tools/ptxas_report.py --all       compiles all of them again (some minutes)

It needs nvcc and ptxas, of a toolkit or of the wheel nvidia-cuda-nvcc, and no GPU.  A row of the table is a kernel;
`threads` of a block and the `blocks` that are to share a multiprocessor bound its registers; `shared` is what it
declares, in bytes, beside what its launch asks for; a cell of an architecture is registers a thread, `+n` if n bytes of
stack and spills come with them.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from layermem.backends.cuda.kernel_images import sources  # noqa: E402
from layermem.backends.cuda.kernel_images.build import FLAGS, whole_source  # noqa: E402
from layermem.backends.cuda.kernel_images.sources import modules  # noqa: E402
from layermem.backends.cuda.kernel_images.toolkit import program  # noqa: E402
from layermem.utils.files import write_atomically  # noqa: E402

REPORT = ROOT / "docs/benchmarks/ptxas.tsv"
ARCHITECTURES = ("75", "80", "86", "89", "90", "100", "120")  # as setup.py builds them
REGISTERS = 65536  # of a multiprocessor, on all of them


class Kernel(NamedTuple):
    """What one compilation says: bounds of its launch, bytes of shared memory, registers, bytes of stack and spills."""

    name: str
    threads: int
    blocks: int
    shared: int
    registers: int
    spilled: int


class Row(NamedTuple):
    """A kernel of the table; registers and spilled bytes by architecture."""

    module: str
    name: str
    threads: int
    blocks: int
    shared: int
    registers: dict[str, int]
    spilled: dict[str, int]

    @property
    def most_registers(self) -> int:
        """A thread's share of the register file, which is dealt out to warps eight registers a thread at a time."""
        return min(255, REGISTERS // (self.threads * self.blocks) // 8 * 8)


def compiled(module: str, architecture: str) -> list[Kernel]:
    """What nvcc and ptxas say of cuda/<module>.cu."""
    with tempfile.TemporaryDirectory(prefix="layermem-") as folder:
        source, ptx = Path(folder) / "kernels.cu", Path(folder) / "kernels.ptx"
        source.write_text(whole_source(module), encoding="utf-8")
        target = sources.architecture(module, architecture)
        _run(["nvcc", *FLAGS, "-O3", f"-arch=compute_{target}", "-ptx", str(source), "-o", str(ptx)])
        cubin = str(Path(folder) / "kernels.cubin")
        said = _run(["ptxas", f"-arch=sm_{target}", "-O3", "-v", str(ptx), "-o", cubin])
        return list(_kernels(ptx.read_text(encoding="utf-8"), said))


def _run(command: Sequence[str]) -> str:
    """What the program prints on stderr, where nvcc and ptxas say what they have to say."""
    found = program(command[0])
    if found is None:
        raise SystemExit(f"{command[0]} is not here: pip install nvidia-cuda-nvcc, or put a toolkit on the PATH")
    done = subprocess.run([found, *command[1:]], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr.strip()}")
    return done.stderr


def _kernels(ptx: str, said: str) -> Iterable[Kernel]:
    bounds = {}
    for name, body in re.findall(r"\.entry (\w+)\((.*?)\{", ptx, re.DOTALL):
        threads, blocks = re.search(r"\.maxntid (\d+)", body), re.search(r"\.minnctapersm (\d+)", body)
        bounds[name] = (int(threads[1]) if threads else 1024, int(blocks[1]) if blocks else 1)
    for part in said.split("Compiling entry function ")[1:]:
        name = re.match(r"'(\w+)'", part)[1]
        stack, stores, loads = map(int, re.search(r"(\d+) bytes stack.*?(\d+) bytes.*?(\d+) bytes", part).groups())
        shared = re.search(r"(\d+) bytes smem", part)
        registers = int(re.search(r"Used (\d+) registers", part)[1])
        yield Kernel(name, *bounds[name], int(shared[1]) if shared else 0, registers, stack + stores + loads)


def digest_of(module: str) -> str:
    """Stands for all that its machine code depends on, but for the compiler: the source without its comments."""
    lines = (re.sub(r"//.*", "", line).rstrip() for line in whole_source(module).splitlines())
    return hashlib.sha256(repr((list(filter(None, lines)), FLAGS, ARCHITECTURES)).encode()).hexdigest()[:16]


# -- the table ---------------------------------------------------------------------------------------------------------


def read_report(path: Path = REPORT) -> tuple[dict[str, str], list[Row]]:
    """Digest of each module, and the rows."""
    digests, rows = {}, []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        if line.startswith("# source "):
            _, _, module, digest = line.split()
            digests[module] = digest
        elif not line.startswith(("#", "module\t")):
            module, name, *numbers = line.split("\t")
            threads, blocks, shared, *cells = numbers
            parts = {a: (*map(int, cell.split("+")), 0)[:2] for a, cell in zip(ARCHITECTURES, cells, strict=True)}
            rows.append(
                Row(
                    module, name, int(threads), int(blocks), int(shared),
                    {a: p[0] for a, p in parts.items()}, {a: p[1] for a, p in parts.items()},
                )
            )  # fmt: skip
    return digests, rows


def written(digests: dict[str, str], rows: Sequence[Row], version: str) -> str:
    lines = [
        f"# registers a thread by architecture, as {version} compiles them with {' '.join(FLAGS)}",
        "# made by tools/ptxas_report.py; +n would be bytes of stack and spills",
        *(f"# source {module} {digests[module]}" for module in sorted(digests)),
        "\t".join(["module", "kernel", "threads", "blocks", "shared", *(f"sm_{a}" for a in ARCHITECTURES)]),
    ]
    for row in sorted(rows, key=lambda row: (row.module, row.name)):
        cells = (f"{row.registers[a]}" + (f"+{row.spilled[a]}" if row.spilled[a] else "") for a in ARCHITECTURES)
        lines.append("\t".join([row.module, row.name, *map(str, (row.threads, row.blocks, row.shared)), *cells]))
    return "\n".join(lines) + "\n"


def rows_of(module: str, found: dict[str, list[Kernel]]) -> list[Row]:
    """Rows of one module from its kernels by architecture; bounds are those of the last one, shared memory is that of
    the one where it is largest: kernels for one architecture do nothing on others."""
    last = {kernel.name: kernel for kernel in found[ARCHITECTURES[-1]]}
    by_name = {a: {kernel.name: kernel for kernel in kernels} for a, kernels in found.items()}
    return [
        Row(
            module, name, kernel.threads, kernel.blocks, max(by_name[a][name].shared for a in ARCHITECTURES),
            {a: by_name[a][name].registers for a in ARCHITECTURES},
            {a: by_name[a][name].spilled for a in ARCHITECTURES},
        )
        for name, kernel in last.items()
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="compile every module again")
    again = parser.parse_args().all
    digests, rows = read_report()
    fresh = {module: digest_of(module) for module in modules()}
    stale = [module for module, digest in fresh.items() if again or digests.get(module) != digest]
    asked = [(module, a) for module in stale for a in ARCHITECTURES]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        kernels = list(pool.map(lambda pair: compiled(*pair), asked))
    found: dict[str, dict[str, list[Kernel]]] = {module: {} for module in stale}
    for (module, architecture), each in zip(asked, kernels, strict=True):
        found[module][architecture] = each
    kept = [row for row in rows if row.module in fresh and row.module not in stale]
    new = [row for module in stale for row in rows_of(module, found[module])]
    said = subprocess.run([str(program("ptxas")), "--version"], capture_output=True, text=True, check=True).stdout
    version = f"ptxas {re.search(r'V([0-9.]+)', said)[1]}"
    write_atomically(REPORT, written(fresh, [*kept, *new], version).encode())
    spilling = [row.name for row in new if any(row.spilled.values())]
    print(f"{len(stale)} modules compiled for {len(ARCHITECTURES)} architectures, {len(new)} kernels: {REPORT}")
    if spilling:
        raise SystemExit(f"these spill: {' '.join(spilling)}")


if __name__ == "__main__":
    main()
