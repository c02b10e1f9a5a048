"""What nvcc and ptxas make of a kernel source: registers, shared memory and spills of each kernel.

Compiling takes seconds to half a minute of a core, so results are kept under build/compiled, by a digest of the source,
the flags, the architecture and the compiler.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from layermem.backends.cuda.kernel_images.build import FLAGS, Nvcc, whole_source
from layermem.backends.cuda.kernel_images.sources import architecture
from layermem.backends.cuda.kernel_images.toolkit import program
from tests.emulator.build import ROOT, made_once

KEPT = ROOT / "build" / "compiled"
REGISTERS, MAX_REGISTERS = 65536, 255  # of a multiprocessor, of a thread


@dataclass(frozen=True)
class CompiledKernel:
    name: str
    threads: int  # of a block, by its launch bounds
    blocks: int  # that share a multiprocessor, by its launch bounds
    registers: int
    static_shared: int  # bytes
    spilled: int  # bytes of stack and spills

    @property
    def promised_registers(self) -> int:
        """A thread's share of the register file, which is dealt out to warps eight registers a thread at a time."""
        return min(MAX_REGISTERS, REGISTERS // (self.threads * self.blocks) // 8 * 8)


def can_compile() -> bool:
    return program("nvcc") is not None and program("ptxas") is not None


def compiled(module: str, capability: str) -> list[CompiledKernel]:
    """The kernels of cuda/<module>.cu for GPUs of a compute capability such as "90"; CompileError with the compiler's
    words where it refuses the source or serializes products of warpgroups."""
    source, target = whole_source(module), architecture(module, capability)
    digest = hashlib.sha256(repr((source, FLAGS, target, _compiler())).encode()).hexdigest()[:24]
    kept = KEPT / f"{module}-{target}-{digest}.json"

    def make(path: Path) -> None:
        kernels = [asdict(each) for each in read_reports(*_compile(source, target))]
        path.write_text(json.dumps(kernels), encoding="utf-8")

    text = made_once(kept, make).read_text(encoding="utf-8")
    return [CompiledKernel(**each) for each in json.loads(text)]


class CompileError(Exception):
    """What nvcc or ptxas says."""


@functools.cache
def _compiler() -> str:
    nvcc = Nvcc.find()
    assert nvcc is not None
    return nvcc.version


def _compile(source: str, target: str) -> tuple[str, str]:
    """The PTX, and what ptxas says of it."""
    with tempfile.TemporaryDirectory(prefix="layermem-") as folder:
        path, ptx, cubin = (Path(folder) / f"kernels.{ending}" for ending in ("cu", "ptx", "cubin"))
        path.write_text(source, encoding="utf-8")
        _run("nvcc", *FLAGS, "-O3", f"-arch=compute_{target}", "-ptx", str(path), "-o", str(ptx))
        said = _run("ptxas", f"-arch=sm_{target}", "-O3", "-v", str(ptx), "-o", str(cubin))
        return ptx.read_text(encoding="utf-8"), said


def _run(name: str, *words: str) -> str:
    done = subprocess.run([str(program(name)), *words], capture_output=True, text=True)
    if done.returncode:
        raise CompileError(done.stderr.strip())
    return done.stderr


def read_reports(ptx: str, said: str) -> Iterator[CompiledKernel]:
    """Launch bounds from the PTX, all else from the report of `ptxas -v`."""
    serialized = [line for line in said.splitlines() if "C7508" in line or "C7510" in line]
    if serialized:  # no product of warpgroups is asynchronous then
        raise CompileError("\n".join(serialized))
    bounds = {}
    for name, head in re.findall(r"\.entry (\w+)\((.*?)\{", ptx, re.DOTALL):
        threads, blocks = re.search(r"\.maxntid (\d+)", head), re.search(r"\.minnctapersm (\d+)", head)
        bounds[name] = (int(threads[1]) if threads else 1024, int(blocks[1]) if blocks else 1)
    for part in said.split("Compiling entry function ")[1:]:
        name = _found(r"'(\w+)'", part)[0]
        spilled = sum(map(int, _found(r"(\d+) bytes stack frame, (\d+) bytes.*?, (\d+) bytes", part)))
        shared, registers = re.search(r"(\d+) bytes smem", part), int(_found(r"Used (\d+) registers", part)[0])
        yield CompiledKernel(name, *bounds[name], registers, int(shared[1]) if shared else 0, spilled)


def _found(pattern: str, text: str) -> tuple[str, ...]:
    match = re.search(pattern, text)
    assert match is not None, f"ptxas does not say {pattern}: {text}"
    return match.groups()
