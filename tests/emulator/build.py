"""Compiles a kernel source for the host, in one of three modes, and keeps the result under build/emulator.

    plain   a shared library for this process
    asan    a program with AddressSanitizer and UndefinedBehaviorSanitizer, spoken to through pipes (host/worker.cpp)
    race    a shared library whose every access is reported to the race checker (host/race.cpp)

The name of a result holds a hash of all that went into it: sources, headers, flags, compiler and processor.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOST = Path(__file__).resolve().parent / "host"
INCLUDES = (HOST, ROOT / "cuda")
REGISTRATION = HOST / "registration.hpp"
CACHE = ROOT / "build" / "emulator"
CXX = os.environ.get("CXX", "g++")

_COMMON = (
    *("-std=c++17", "-fPIC", "-pthread", "-fvisibility=hidden", "-fno-strict-aliasing", "-ffp-contract=off"),
    *("-Wall", "-Wno-unknown-pragmas", "-Wno-unused-function"),
    "--param=ggc-min-heapsize=524288",  # KiB: a tenth less time in the compiler's collector
)
_LINKER = ("-fuse-ld=gold",) if shutil.which("ld.gold") else ()  # links in less than half the time
_MACHINE = ("launch.cpp", "machine.cpp", "fiber.cpp", "warp.cpp", "copies.cpp", "warpgroup.cpp")
# Only those checks of UBSan that find more than AddressSanitizer: it also reports accesses through null or wrapped
# pointers as out of bounds, and leaving these checks out saves a fifth of the compiler's time.
_UNDEFINED = ("shift", "signed-integer-overflow", "integer-divide-by-zero", "alignment", "bounds-strict")
# A finding executes an illegal instruction, which AddressSanitizer reports with its line: calls that print the values
# would be half of the code, and of the compiler's time.
_SANITIZE = (f"-fsanitize={','.join(('address', *_UNDEFINED))}", "-fsanitize-undefined-trap-on-error", "-g1")
# Checks by calls instead of inline code save a quarter of the compiler's time, which exceeds that of runs.
_BY_CALLS = "--param=asan-instrumentation-with-call-threshold=0"


@dataclass(frozen=True)
class Mode:
    kernel: tuple[str, ...]  # flags for kernel sources
    machine: tuple[str, ...]  # flags for the emulator's own sources
    link: tuple[str, ...]
    sources: tuple[str, ...] = _MACHINE
    suffix: str = ".so"


MODES = {
    "plain": Mode(kernel=("-Og",), machine=("-O2", "-ftree-vectorize"), link=("-shared",)),
    "asan": Mode(
        kernel=("-Og", *_SANITIZE, _BY_CALLS),
        machine=("-O1", *_SANITIZE),
        link=_SANITIZE,
        sources=(*_MACHINE, "worker.cpp"),
        suffix="",
    ),
    "race": Mode(
        # compiled against libtsan's interface, but never linked with it; a float4 stays one access of 16 bytes.  -Og
        # would keep reads whose values are not used, and those may be of memory that was never written
        kernel=("-O1", "-fno-tree-sra", "-g1", "-fsanitize=thread"),
        machine=("-O2", "-DLM_CHECK_RACES"),
        link=("-shared",),
        sources=(*_MACHINE, "race.cpp", "callbacks.cpp", "banks.cpp"),
    ),
}


class CompileError(Exception):
    """g++ rejected a source; the text is its output."""


def build(source: str | Path, mode: str = "plain", defines: Sequence[str] = ()) -> Path:
    """Return the library (or, for asan, the program) of one kernel source; it is built unless it is in the cache.

    `source` is relative to the repository or absolute; `defines` are macros like "TILE=32".
    """
    path, how = ROOT / source, MODES[mode]
    flags = (*_COMMON, *_processor_flags(), *how.kernel, *(f"-I{folder}" for folder in INCLUDES))
    common = _precompiled(flags)
    flags = (*flags, "-include", str(common), "-include", str(REGISTRATION), *(f"-D{define}" for define in defines))
    inputs = [*_closure(path, INCLUDES), REGISTRATION]
    objects = machine(mode)
    key = _digest((*flags, *_LINKER), inputs, [str(o) for o in objects])
    result = CACHE / f"{path.stem}-{mode}-{key}{how.suffix}"

    def make(partial: Path) -> None:
        kernel = partial.with_suffix(".o")
        _compile(*flags, "-c", "-x", "c++", str(path), "-o", str(kernel))
        _compile(str(kernel), *map(str, objects), *how.link, *_LINKER, "-pthread", "-ldl", "-o", str(partial))
        kernel.unlink()

    return made_once(result, make)


@functools.cache
def _precompiled(flags: tuple[str, ...]) -> Path:
    """The header that all sources begin with, compiled once for all builds with these flags.

    g++ takes the compiled one beside it, unless a build defines what that depends on, such as LM_EMULATE_ARCH.
    """
    primitives = (ROOT / "cuda" / name for name in ("primitives.cuh", "warpgroup.cuh"))
    parts = (HOST / "emulation.hpp", *primitives, HOST / "calls.hpp")
    key = _digest(flags, [file for part in parts for file in _closure(part, INCLUDES)])
    header = CACHE / key / "common.hpp"

    def make(partial: Path) -> None:
        header.write_text("".join(f'#include "{part}"\n' for part in parts))
        _compile(*flags, "-x", "c++-header", str(header), "-o", str(partial))

    made_once(header.with_suffix(".hpp.gch"), make)
    return header


def build_many(wanted: Iterable[tuple[str | Path, str]]) -> None:
    """Build several (source, mode) pairs in the cache, on all cores."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda one: build(*one), list(wanted)))


@functools.cache
def machine(mode: str) -> tuple[Path, ...]:
    """The emulator's own object files for a mode."""
    how = MODES[mode]
    flags = (*_COMMON, *_processor_flags(), *how.machine)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return tuple(pool.map(lambda name: object_file(HOST / name, flags, mode), how.sources))


def object_file(source: Path, flags: Sequence[str], tag: str = "host") -> Path:
    """Compile one C++ source to an object file, unless it is in the cache."""
    flags = (*flags, "-c")
    key = _digest(flags, _closure(source, (source.parent,)))
    result = CACHE / f"{source.stem}-{tag}-{key}.o"
    return made_once(result, lambda partial: _compile(*flags, str(source), "-o", str(partial)))


def linked(name: str, objects: Sequence[Path], flags: Sequence[str]) -> Path:
    """Link a library with this exact name, in its own folder."""
    key = _digest(flags, (), [str(o) for o in objects])
    result = CACHE / key / name
    return made_once(result, lambda partial: _compile(*map(str, objects), *flags, "-o", str(partial)))


def _compile(*arguments: str) -> None:
    done = subprocess.run([CXX, *arguments], capture_output=True, text=True)
    if done.returncode:
        raise CompileError(f"{CXX} {' '.join(arguments)}\n{done.stderr}")


def made_once(result: Path, make) -> Path:
    """Return `result`, made by `make(partial path)` unless it exists; one process at a time, and never a partial
    file."""
    if result.exists():
        return result
    result.parent.mkdir(parents=True, exist_ok=True)
    with open(result.parent / f".{result.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            partial = result.parent / f".{result.name}.partial"
            make(partial)
            partial.rename(result)
    return result


def _closure(source: Path, folders: Sequence[Path]) -> list[Path]:
    """The file and all files that it includes by "name", found next to the includer or in `folders`."""
    seen: list[Path] = []
    left = [source]
    while left:
        path = left.pop()
        if path in seen:
            continue
        seen.append(path)
        for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text(), re.MULTILINE):
            left += [folder / name for folder in (path.parent, *folders) if (folder / name).exists()][:1]
    return seen


def _digest(flags: Sequence[str], files: Iterable[Path], more: Sequence[str] = ()) -> str:
    hashed = hashlib.sha256(repr((flags, tuple(more), _compiler())).encode())
    for path in (Path(__file__), *files):
        hashed.update(path.read_bytes())
    return hashed.hexdigest()[:16]


@functools.cache
def _compiler() -> str:
    try:
        return subprocess.run([CXX, "--version"], capture_output=True, text=True, check=True).stdout + _processor()
    except FileNotFoundError:
        raise CompileError(f"the emulator needs a C++17 compiler; '{CXX}' is not there (set CXX)") from None


@functools.cache
def _processor() -> str:
    """The features of this processor, as far as Linux reports them: code for one may not run on another."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return platform.machine() + next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _processor_flags() -> tuple[str, ...]:
    """Flags for fmaf(), which is called often and is one instruction if the processor has it."""
    return ("-mavx2", "-mfma") if {"avx2", "fma"} <= set(_processor().split()) else ()
