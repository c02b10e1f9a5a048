"""What ptxas makes of every kernel for every architecture: registers, shared memory, spills.

    python tools/ptxas_report.py             brings docs/benchmarks/ptxas.tsv up to date: modules whose source changed
    python tools/ptxas_report.py --all       compiles all of them again (some minutes)
    python tools/ptxas_report.py pooling conv_fprop_128x128_v4
                                             these modules alone; of kernels, prints what it finds and writes nothing

The table is written after each module: an interrupted run keeps what it has, and the next one goes on.  Spills are
printed as they are found.  Compilations run side by side, the longest first.

It needs nvcc and ptxas, of a toolkit or of the wheel nvidia-cuda-nvcc, and no GPU.  A row of the table is a kernel;
`threads` of a block and the `blocks` that are to share a multiprocessor bound its registers; `shared` is what it
declares, in bytes, beside what its launch asks for; a cell of an architecture is registers a thread, `+n` if n bytes of
stack and spills come with them.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
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
# As ARCHITECTURES, in sets for which the compiler's front end makes the same PTX, but for its target, of a source that
# makes no difference between them.
ALIKE = (("75",), ("80", "86", "89"), ("90",), ("100", "120"))
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
    return compiled_alike(module, (architecture,))[architecture]


def compiled_alike(module: str, alike: Sequence[str], kernels: Collection[str] = ()) -> dict[str, list[Kernel]]:
    """The same for architectures with the same PTX: all kernels of the module, or those with these names."""
    with tempfile.TemporaryDirectory(prefix="layermem-") as folder:
        source, ptx = Path(folder) / "kernels.cu", Path(folder) / "kernels.ptx"
        source.write_text(whole_source(module), encoding="utf-8")
        first, *_ = targets = [sources.architecture(module, each) for each in alike]
        _run(["nvcc", *FLAGS, "-O3", f"-arch=compute_{first}", "-ptx", str(source), "-o", str(ptx)])
        text, cubin = ptx.read_text(encoding="utf-8"), str(Path(folder) / "kernels.cubin")
        entries = [word for name in kernels for word in ("--entry", name)]
        return {
            each: list(_kernels(text, _run(["ptxas", f"-arch=sm_{to}", "-O3", "-v", *entries, str(ptx), "-o", cubin])))
            for each, to in zip(alike, targets, strict=True)
        }


def sets_of(source: str) -> list[tuple[str, ...]]:
    """ALIKE, or single architectures where the source distinguishes those of a set."""
    bounds = {int(number) for number in re.findall(r"(?:LM_ARCH|__CUDA_ARCH__)\W+(\d+)", source)}
    sets: list[tuple[str, ...]] = []
    for alike in ALIKE:
        first, last = 10 * int(alike[0]), 10 * int(alike[-1])
        is_one = not any(first <= bound <= last + 9 and bound != first for bound in bounds)
        sets += [alike] if is_one else [(each,) for each in alike]
    return sets


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
    serialized = [line for line in said.splitlines() if "wgmma" in line and "serialized" in line]
    if serialized:  # no product is asynchronous then
        raise SystemExit("\n".join(serialized))
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


Compile = Callable[[str, Sequence[str]], dict[str, list[Kernel]]]


def compile_all(names: Iterable[str], compile: Compile, workers: int) -> Iterator[tuple[str, dict[str, list[Kernel]]]]:
    """Each module with its kernels by architecture, once its compilations have ended.  Those of the longest sources
    begin first."""
    jobs = [
        (len(text), module, alike) for module in names for text in [whole_source(module)] for alike in sets_of(text)
    ]
    jobs.sort(key=lambda job: (-job[0], job[1]))
    left = {module: sum(module == of for _, of, _ in jobs) for _, module, _ in jobs}
    found: dict[str, dict[str, list[Kernel]]] = {module: {} for module in left}
    with ThreadPoolExecutor(workers) as pool:
        running = {pool.submit(compile, module, alike): module for _, module, alike in jobs}
        try:
            for done in as_completed(running):
                module = running[done]
                found[module].update(done.result())
                left[module] -= 1
                if not left[module]:
                    yield module, {a: found[module][a] for a in ARCHITECTURES}
        finally:
            pool.shutdown(cancel_futures=True)


def spills_of(module: str, found: dict[str, list[Kernel]]) -> list[str]:
    """A line for each kernel and architecture."""
    return [
        f"{module} {kernel.name} spills {kernel.spilled} bytes on sm_{a}"
        for a, kernels in found.items()
        for kernel in kernels
        if kernel.spilled
    ]


def update(
    names: Iterable[str], compile: Compile, version: str, path: Path = REPORT, workers: int = 1
) -> tuple[int, list[str]]:
    """Compiles these modules, and writes the table after each; how many kernels there were, and the spills."""
    digests, rows = read_report(path)
    of = {module: digest_of(module) for module in modules()}
    digests = {module: digest for module, digest in digests.items() if module in of}
    rows, kernels, spills = [row for row in rows if row.module in of], 0, list[str]()
    for module, found in compile_all(names, compile, workers):
        new, more = rows_of(module, found), spills_of(module, found)
        digests[module] = of[module]
        rows = [row for row in rows if row.module != module] + new
        write_atomically(path, written(digests, rows, version).encode())
        print("\n".join([f"{module}: {len(new)} kernels", *more]), flush=True)
        kernels, spills = kernels + len(new), spills + more
    return kernels, spills


def modules_with(kernels: Sequence[str], rows: Iterable[Row]) -> dict[str, list[str]]:
    """The kernels of the table with these names or patterns, by module."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if any(fnmatch.fnmatchcase(row.name, each) for each in kernels):
            found.setdefault(row.module, []).append(row.name)
    unknown = [each for each in kernels if not any(fnmatch.filter(names, each) for names in found.values())]
    if unknown:
        raise SystemExit(f"no module or kernel of the table is named {' '.join(unknown)}")
    return found


def print_kernels(module: str, found: dict[str, list[Kernel]]) -> None:
    for a, kernels in found.items():
        for kernel in kernels:
            spilled = f", spills {kernel.spilled} bytes" if kernel.spilled else ""
            print(f"{module} {kernel.name} sm_{a}: {kernel.registers} registers{spilled}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="modules to compile, or kernels to print; patterns of kernels too")
    parser.add_argument("--all", action="store_true", help="compile every module again")
    args = parser.parse_args()
    known, workers = modules(), os.cpu_count() or 1
    kernels = [name for name in args.names if name not in known]
    digests, rows = read_report()
    if kernels:
        of = modules_with(kernels, rows)
        for module, found in compile_all(of, lambda m, alike: compiled_alike(m, alike, of[m]), workers):
            print_kernels(module, found)
    named = [name for name in args.names if name in known]
    stale = [module for module in known if digests.get(module) != digest_of(module)]
    chosen = named if args.names else known if args.all else stale
    if args.names and not named:
        return
    said = subprocess.run([str(program("ptxas")), "--version"], capture_output=True, text=True, check=True).stdout
    version = f"ptxas {re.search(r'V([0-9.]+)', said)[1]}"
    count, spills = update(chosen, compiled_alike, version, workers=workers)
    print(f"{len(chosen)} modules compiled for {len(ARCHITECTURES)} architectures, {count} kernels: {REPORT}")
    if spills:
        raise SystemExit("\n".join(spills))


if __name__ == "__main__":
    main()
