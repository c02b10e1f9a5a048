#!/usr/bin/env python3
"""Compile the C++ files of layermem/native into objects, side by side; setup.py links them to layermem._native.

tools/compile_native.py              all but the bindings: needs Python and a C++17 compiler alone
tools/compile_native.py --bindings   the bindings: needs pybind11

`make train` starts the first while pip still installs; setup.py compiles missing objects.  An object lies in
build/native/HASH/, by the command that made it, and is compiled again when a file that it includes is newer.

The files of layermem/native/cpu/microkernels are compiled once per instruction set (ISA) of the machine's architecture;
the ISA is selected at run time (layermem/native/cpu/isa), so one wheel serves every x86-64 machine.

Environment
    CXX, CFLAGS, CPPFLAGS      as for every extension of Python
    LAYERMEM_BUILD_JOBS=n      parallel compilations (default: one per core)
    LAYERMEM_GROUPED=0         one compilation per file, for rebuilding after small changes; by default a group of files
                               is one compilation, which parses shared headers once and takes half the time
    LAYERMEM_ISAS=native       microkernels only of the best ISA of this machine (default: of all)
    LAYERMEM_SANITIZE=LIST     with gcc's -fsanitize=LIST, e.g. "address,undefined" or "thread", and -O1 -g1
    LAYERMEM_WERROR=1          warnings are errors
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import shlex
import subprocess
import sysconfig
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

INCLUDE = Path("layermem/native")
BUILD = Path("build/native")
X86 = platform.machine().lower() in ("x86_64", "amd64")
ISA_FLAGS: dict[str, list[str]] = {"base": []}
if X86:
    ISA_FLAGS["avx2"] = ["-mavx2", "-mfma", "-mf16c"]
    ISA_FLAGS["avx512"] = ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma"]

SANITIZE = os.environ.get("LAYERMEM_SANITIZE", "")
GROUPED = os.environ.get("LAYERMEM_GROUPED", "1") != "0"
WARNINGS = ["-Wall", "-Wextra"] + (["-Werror"] if os.environ.get("LAYERMEM_WERROR", "0") != "0" else [])
INSTRUMENT = [f"-fsanitize={SANITIZE}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"] if SANITIZE else []
COMPILE = [*WARNINGS, "-std=c++17", "-fvisibility=hidden", "-MMD", "-fno-math-errno", "-ffp-contract=off"]
OPTIMIZE = ["-O1", "-g1", "-D_GLIBCXX_ASSERTIONS"] if SANITIZE else ["-O3", "-g0"]
STANDARD_HEADERS = (
    "algorithm", "array", "cmath", "cstdint", "cstring", "functional", "limits", "memory", "numeric", "optional",
    "stdexcept", "string", "tuple", "utility", "vector",
)  # fmt: skip
MAX_BINDING_GROUPS = 2  # each parses pybind11, which takes six seconds


def jobs() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, int(os.environ.get("LAYERMEM_BUILD_JOBS") or cores or 1))


def chosen_isas() -> dict[str, list[str]]:
    """The ISAs to compile for, with their flags."""
    if os.environ.get("LAYERMEM_ISAS", "all") != "native" or not X86:
        return ISA_FLAGS
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ISA_FLAGS
    cpu = {flag for line in lines if line.startswith("flags") for flag in line.split()}
    best = [isa for isa, flags in ISA_FLAGS.items() if all(flag.removeprefix("-m") in cpu for flag in flags)][-1]
    return {best: ISA_FLAGS[best]}


def compiler() -> list[str]:
    """The C++ compiler with the flags of every extension of this Python."""
    known = sysconfig.get_config_vars()
    command = os.environ.get("CXX") or known.get("CXX") or "c++"
    flags = (known.get("CFLAGS"), os.environ.get("CFLAGS"), os.environ.get("CPPFLAGS"), known.get("CCSHARED"))
    return [*shlex.split(command), *(flag for text in flags if text for flag in shlex.split(text))]


@cache
def is_gcc() -> bool:
    version = subprocess.run([*compiler(), "--version"], capture_output=True, text=True)
    return "Free Software Foundation" in version.stdout


def stale(obj: Path) -> bool:
    """Whether the object is missing, or older than a file that it includes (listed by -MMD in the .d file next to
    it)."""
    rule = obj.with_suffix(".d")
    if not (obj.exists() and rule.exists()):
        return True
    built = obj.stat().st_mtime
    inputs = rule.read_text().replace("\\\n", " ").partition(": ")[2].split()
    return any(not Path(f).exists() or Path(f).stat().st_mtime > built for f in inputs)


def write_if_changed(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return path


@dataclass(frozen=True)
class Compilation:
    """A source file or a file that includes several of them, the flags, and the headers that may be precompiled."""

    source: Path
    flags: tuple[str, ...]
    label: str
    weight: int  # the heaviest starts first
    headers: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        # KiB: saves a tenth of the time in gcc's garbage collector.
        memory = ["--param=ggc-min-heapsize=524288"] if is_gcc() else []
        return [*compiler(), *self.flags, *memory, f"-I{INCLUDE}"]

    @property
    def folder(self) -> Path:
        made_by = shlex.join(flag for flag in self.command if flag != "-Werror")
        return BUILD / hashlib.sha256(made_by.encode()).hexdigest()[:12]

    @property
    def object(self) -> Path:
        inside = self.source.relative_to(INCLUDE if self.source.is_relative_to(INCLUDE) else BUILD)
        return self.folder / inside.with_suffix(".o")

    def precompile(self) -> Path | None:
        """The header whose precompiled form every file with these flags may include; None if there is none."""
        if not is_gcc():
            return None
        header = write_if_changed(self.folder / "headers.h", "".join(f"#include <{name}>\n" for name in self.headers))
        out = header.with_name("headers.h.gch")
        if stale(out):
            made = [*self.command, "-MF", out.with_suffix(".d"), "-x", "c++-header", header, "-o", out]
            if subprocess.run(made, capture_output=True).returncode:
                return None
        return header

    def compile(self, precompiled: Path | None) -> None:
        self.object.parent.mkdir(parents=True, exist_ok=True)
        include = ["-include", str(precompiled)] if precompiled else []
        done = subprocess.run([*self.command, *include, "-c", str(self.source), "-o", str(self.object)])
        if done.returncode:
            raise SystemExit(f"{self.source} does not compile: see the compiler's message above")


# ---- groups ---------------------------------------------------------------------------------------------------------

LOCAL = re.compile(r"^namespace \{$.*?^\}  // namespace$", re.MULTILINE | re.DOTALL)
NAMES = re.compile(
    r"^(?:struct|class|enum class|using) (\w+)"  # a type
    r"|^\w[\w:<>*&, ]*[ &*](\w+)(?:\{| =|;)"  # a variable
    r"|\b(k[A-Z]\w*) =",  # a constant
    re.MULTILINE,
)
FUNCTIONS = re.compile(r"^\w[\w:<>*&, ]*[ &*](\w+)\(([^),]*)", re.MULTILINE)


class Names:
    """The names in the unnamed namespaces of a file, and its words, which decide whether files can be compiled
    together.

    Another file may use such a name for something else.  Functions may overload each other, except those with the same
    name and the same first parameter.
    """

    def __init__(self, source: Path):
        text = re.sub(r"//(?! namespace).*", "", source.read_text())
        own = "".join(LOCAL.findall(text))
        self.names = {name for names in NAMES.findall(own) for name in names if name}
        self.functions = set(FUNCTIONS.findall(own))
        self.words = set(re.findall(r"(?<![.>])\b\w+", text)) - {name for name, _ in self.functions}
        self.defined = self.names | {name for name, _ in self.functions}
        self.size = len(text)

    def apart(self, other: Names) -> bool:
        """Whether the two files can be compiled together: no local name of one occurs in the other."""
        return not (
            self.defined & other.words
            or other.defined & self.words
            or self.names & other.defined
            or other.names & self.defined
            or self.functions & other.functions
        )


def group_files(sources: Iterable[Path], cores: int | None = None) -> list[list[Path]]:
    """Group files that may be compiled together, in few groups; with more than two cores, one group per two or more."""
    known = {source: Names(source) for source in sources}
    sizes = [each.size for each in known.values()]
    largest = max(sum(sizes) * 2 / max(2, cores or jobs()), *sizes)
    groups: list[list[Path]] = []
    for source, own in sorted(known.items(), key=lambda item: (-item[1].size, item[0])):
        for group in groups:
            fits = own.size + sum(known[other].size for other in group) <= largest
            if fits and all(own.apart(known[other]) for other in group):
                group.append(source)
                break
        else:
            groups.append([source])
    return [sorted(group) for group in groups]


def compilations(sources: Iterable[Path], flags: list[str], headers: tuple[str, ...], note: str) -> list[Compilation]:
    """Return a compilation for each file, or for each group of files."""
    if not GROUPED:
        return [
            Compilation(source, tuple(flags), source.name + note, source.stat().st_size, headers) for source in sources
        ]
    return [one_of(files, flags, note) for files in group_files(sources)]


def one_of(files: list[Path], flags: list[str], note: str) -> Compilation:
    """Return one compilation of several files."""
    if len(files) == 1:
        return Compilation(files[0], tuple(flags), files[0].name + note, files[0].stat().st_size)
    text = "".join(f'#include "{file.relative_to(INCLUDE)}"\n' for file in files)
    name = f"{files[0].stem}_and_{len(files) - 1}_more.cpp"
    source = write_if_changed(BUILD / "groups" / hashlib.sha256(text.encode()).hexdigest()[:12] / name, text)
    label = f"{', '.join(file.stem for file in files)}{note}"
    return Compilation(source, tuple(flags), label, sum(file.stat().st_size for file in files))


# ---- files to compile ------------------------------------------------------------------------------------------------


def kernel_compilations() -> list[Compilation]:
    """Return the compilations of everything but the bindings."""
    sources = [path for path in sorted(INCLUDE.rglob("*.cpp")) if not is_binding(path)]
    flags = [*COMPILE, *OPTIMIZE, *INSTRUMENT]
    microkernels = [path for path in sources if path.parent.name == "microkernels"]
    work = []
    for part in ("planning", "cpu", "distributed"):
        files = [path for path in sources if path.is_relative_to(INCLUDE / part) and path not in microkernels]
        work += compilations(files, flags, STANDARD_HEADERS, "")
    work += compilations([path for path in sources if path.parent == INCLUDE], flags, STANDARD_HEADERS, "")
    for isa, isa_flags in chosen_isas().items():
        own = [*flags, f"-DLAYERMEM_ISA={isa}", *isa_flags]
        headers = (*STANDARD_HEADERS, "immintrin.h") if X86 else STANDARD_HEADERS
        work += compilations(microkernels, own, headers, f" ({isa})")
    return work


def is_binding(path: Path) -> bool:
    return path.parent.name == "bindings" or path == INCLUDE / "bindings.cpp"


def binding_compilations() -> list[Compilation]:
    """Return the compilations of the bindings: one or two groups, because most of the time goes into pybind11.

    Bindings are not instrumented, and their objects are the same in all builds.  -Og inlines small functions, and takes
    two thirds of the time of -O1.
    """
    import pybind11

    bindings = sorted(
        (path for path in INCLUDE.rglob("*.cpp") if is_binding(path)), key=lambda path: -path.stat().st_size
    )
    folders = [pybind11.get_include(), sysconfig.get_path("include"), sysconfig.get_path("platinclude")]
    flags = [*COMPILE, "-Og", "-g0", *(f"-I{folder}" for folder in dict.fromkeys(folders))]
    number = min(MAX_BINDING_GROUPS, max(1, jobs() // 2))
    return [one_of(sorted(bindings[i::number]), flags, "") for i in range(number)]


def compile_all(work: list[Compilation]) -> list[Path]:
    """Compile stale objects in parallel, printing each name; return all objects."""
    todo = sorted((each for each in work if stale(each.object)), key=lambda each: -each.weight)
    numbers = count(1)
    with ThreadPoolExecutor(jobs()) as pool:
        precompiled: dict[Path, Future[Path | None]] = {}
        for each in todo:
            if each.headers and each.folder not in precompiled:
                precompiled[each.folder] = pool.submit(each.precompile)

        def compile_one(each: Compilation) -> None:
            header = precompiled[each.folder].result() if each.headers else None
            print(f"[{next(numbers):>3}/{len(todo)}] {each.label}", flush=True)
            each.compile(header)

        done = [pool.submit(compile_one, each) for each in todo]
        try:
            for future in done:
                future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [each.object for each in work]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bindings", action="store_true", help="the bindings, instead of everything else")
    args = parser.parse_args()
    os.chdir(Path(__file__).resolve().parents[1])
    compile_all(binding_compilations() if args.bindings else kernel_compilations())


if __name__ == "__main__":
    main()
