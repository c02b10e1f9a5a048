"""Build layermem._native from every .cpp below layermem/native, and what a wheel carries besides.

The files of layermem/native/cpu/microkernels are compiled once per instruction set (ISA) of the machine's architecture;
which of them runs is decided at run time (layermem/native/cpu/isa), so one wheel serves every x86-64 machine.

A wheel carries the example nets of prototxt/, and the CUDA kernels' sources; where nvcc is found, also their machine
code for all supported architectures (takes minutes; LAYERMEM_FATBINS=0 leaves it out, and kernels are then compiled at
first use).

Environment
    LAYERMEM_BUILD_JOBS=n      parallel compilations (default: one per core)
    LAYERMEM_ISAS=native       the microkernels of the best ISA of this machine only (default: of all)
    LAYERMEM_NATIVE=0          build no extension
    LAYERMEM_WERROR=1          warnings are errors
    LAYERMEM_SANITIZE=LIST     build with gcc's -fsanitize=LIST, e.g. "address,undefined" or "thread", and -O1 -g1, into
                               build/sanitize-LIST/layermem/ (commas as dashes), apart from the ordinary extension
"""

import os
import platform
import re
import shutil
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from pybind11.setup_helpers import Pybind11Extension, build_ext
from setuptools import setup
from setuptools.command.build_py import build_py

X86 = platform.machine().lower() in ("x86_64", "amd64")
ISA_FLAGS = {"base": []}
if X86:
    ISA_FLAGS["avx2"] = ["-mavx2", "-mfma"]
    ISA_FLAGS["avx512"] = ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma"]

SANITIZE = os.environ.get("LAYERMEM_SANITIZE", "")
WARNINGS = ["-Wall", "-Wextra"] + (["-Werror"] if os.environ.get("LAYERMEM_WERROR", "0") != "0" else [])
INSTRUMENT = [f"-fsanitize={SANITIZE}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"] if SANITIZE else []
COMPILE = [*WARNINGS, "-std=c++17", "-fvisibility=hidden", "-MMD", "-fno-math-errno", "-ffp-contract=off"]
OPTIMIZE = ["-O1", "-g1", "-D_GLIBCXX_ASSERTIONS"] if SANITIZE else ["-O3", "-g0"]
INCLUDE = "layermem/native"
STANDARD_HEADERS = (
    "algorithm", "array", "cmath", "cstdint", "cstring", "functional", "limits", "memory", "numeric", "optional",
    "stdexcept", "string", "tuple", "utility", "vector",
)  # fmt: skip
MAX_BINDING_GROUPS = 4  # each costs seven seconds for pybind11 itself


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


def stale(obj: str | Path, src: str) -> bool:
    """Whether `src` or a header that it included last time (listed by -MMD in the .d file) is newer than its object."""
    rule = Path(obj).with_suffix(".d")
    if not (Path(obj).exists() and rule.exists()):
        return True
    built = Path(obj).stat().st_mtime
    inputs = rule.read_text().replace("\\\n", " ").partition(": ")[2].split()
    return any(not Path(f).exists() or Path(f).stat().st_mtime > built for f in [src, *inputs])


def write_if_changed(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return str(path)


@dataclass(frozen=True)
class Compilation:
    """A source file, the folder of its object, the flags, and the precompiled standard headers that it may use."""

    source: str
    folder: Path
    flags: list[str]
    headers: str | None = None

    @property
    def weight(self) -> int:
        """What takes longest starts first: bindings, then long files."""
        return (1 << 30 if self.headers is None else 0) + Path(self.source).stat().st_size

    @property
    def name(self) -> str:
        isa = next((flag.partition("=")[2] for flag in self.flags if flag.startswith("-DLAYERMEM_ISA=")), "")
        return Path(self.source).name + (f" ({isa})" if isa else "")


class build_native(build_ext):
    def finalize_options(self):
        if SANITIZE:
            self.inplace = False
            self.build_lib = f"build/sanitize-{SANITIZE.replace(',', '-')}"
            self.build_temp = f"{self.build_lib}/objects"
        super().finalize_options()

    def build_extension(self, ext):
        """Compile every file here, each group with flags of its own; the base class links."""
        work = self.compilations(ext)
        ext.extra_objects = [*ext.extra_objects, *self.compile_all(ext, work)]
        ext.depends = [*ext.depends, *ext.sources, *ext.extra_objects]  # a newer one of these decides to link
        ext.sources = []
        super().build_extension(ext)

    def compilations(self, ext) -> list[Compilation]:
        temporary = Path(self.build_temp)
        microkernels = [source for source in ext.sources if Path(source).parent.name == "microkernels"]
        bindings = [source for source in ext.sources if Path(source).stem.startswith("bind")]
        others = [source for source in ext.sources if source not in microkernels + bindings]
        flags = [*COMPILE, *OPTIMIZE, *INSTRUMENT]
        work = [Compilation(source, temporary, flags, self.headers(temporary / "others")) for source in others]
        for isa, isa_flags in chosen_isas().items():
            headers = self.headers(temporary / isa)
            for source in microkernels:
                own = [*flags, f"-DLAYERMEM_ISA={isa}", *isa_flags]
                work.append(Compilation(source, temporary / isa, own, headers))
        # Bindings only translate, and take longest to compile, most of it for pybind11: a few groups of them.  They are
        # not instrumented, and the same objects in all builds.
        shared = Path(self.get_finalized_command("build").build_temp, "bindings")
        groups = min(jobs(), MAX_BINDING_GROUPS)
        by_size = sorted(bindings, key=lambda source: (-Path(source).stat().st_size, source))
        for index in range(groups):
            lines = [f'#include "{Path(source).relative_to(INCLUDE)}"\n' for source in by_size[index::groups]]
            source = write_if_changed(shared / f"group{index}of{groups}.cpp", "".join(lines))
            work.append(Compilation(source, shared, [*COMPILE, "-O1", "-g0"]))
        return work

    def headers(self, folder: Path) -> str:
        return write_if_changed(folder / "standard.h", "".join(f"#include <{name}>\n" for name in STANDARD_HEADERS))

    def compile_all(self, ext, work: list[Compilation]) -> list[str]:
        """Compile what is stale, side by side, and say so file by file; returns all objects."""
        objects = [self.compiler.object_filenames([each.source], output_dir=str(each.folder))[0] for each in work]
        todo = sorted(
            (each for each, obj in zip(work, objects) if stale(obj, each.source)), key=lambda each: -each.weight
        )
        for obj in objects:
            Path(obj).parent.mkdir(parents=True, exist_ok=True)
        numbers = count(1)
        with ThreadPoolExecutor(jobs()) as pool:
            precompiled: dict[str, Future[bool]] = {}
            for each in todo:
                if each.headers and each.headers not in precompiled:
                    precompiled[each.headers] = pool.submit(self.precompile, each.headers, each.flags)

            def compile_one(each: Compilation) -> None:
                fast = each.headers and precompiled[each.headers].result()
                print(f"[{next(numbers):>3}/{len(todo)}] {each.name}", flush=True)
                self.compiler.compile(
                    [each.source],
                    output_dir=str(each.folder),
                    include_dirs=ext.include_dirs,
                    extra_postargs=[*each.flags, *(["-include", each.headers] if fast else [])],
                )

            done = [pool.submit(compile_one, each) for each in todo]
            try:
                for future in done:
                    future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return objects

    def precompile(self, headers: str, flags: list[str]) -> bool:
        """Whether gcc has parsed the standard headers once for all files with `flags`; without, each file does."""
        command = list(getattr(self.compiler, "compiler_so_cxx", None) or self.compiler.compiler_so)
        out = f"{headers}.gch"
        if not stale(out, headers):
            return True
        version = subprocess.run([*command, "--version"], capture_output=True, text=True)
        if "Free Software Foundation" not in version.stdout:
            return False
        made = [*command, *flags, "-x", "c++-header", headers, "-o", out]
        return subprocess.run(made, capture_output=True).returncode == 0


ARCHITECTURES = ("75", "80", "86", "89", "90", "100", "120")  # the last one as PTX too, for newer GPUs


class build_data(build_py):
    """Ships prototxt/ as example_nets/ and cuda/ as cuda_kernels/, unless the package is used in place."""

    def run(self):
        super().run()
        if getattr(self, "editable_mode", False):
            return
        package = Path(self.build_lib, "layermem")
        unwanted = shutil.ignore_patterns("lock.mdb", "__pycache__")
        for source, name in (("prototxt", ""), ("docs/python_layers", "python_layers")):
            shutil.copytree(source, package / "example_nets" / name, ignore=unwanted, dirs_exist_ok=True)
        folder = package / "cuda_kernels"
        folder.mkdir(parents=True, exist_ok=True)
        for source in sorted(Path("cuda").glob("*.cu*")):
            shutil.copy(source, folder)
        nvcc = shutil.which("nvcc")
        if nvcc and os.environ.get("LAYERMEM_FATBINS", "1") != "0":
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(lambda source: fatbin(nvcc, source), sorted(folder.glob("*.cu"))))


def fatbin(nvcc, source):
    """Machine code for every architecture beside `source`; a failure is printed, and only costs time at first use."""
    codes = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in ARCHITECTURES]
    codes.append(f"-gencode=arch=compute_{ARCHITECTURES[-1]},code=compute_{ARCHITECTURES[-1]}")
    flags = ["--std=c++17", "--fmad=false", "-O3", "--compress-mode=size", *codes]
    out = source.with_suffix(".fatbin")
    done = subprocess.run([nvcc, *flags, "-fatbin", str(source), "-o", str(out)], capture_output=True, text=True)
    if done.returncode:
        print(f"no prebuilt kernels of {source.name}: {done.stderr.strip()}", file=sys.stderr)
        out.unlink(missing_ok=True)


def long_description() -> str:
    """README.md without pictures and with links to other pages as plain text: they are no files of a package index."""
    text = re.sub(r"^!\[.*\n+", "", Path("README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]*\)", r"\1", text)


sources = sorted(str(p) for p in Path("layermem/native").rglob("*.cpp"))
native = os.environ.get("LAYERMEM_NATIVE", "1") != "0"  # the Makefile installs first, and builds in place once
setup(
    ext_modules=[]
    if not native
    else [
        Pybind11Extension(
            "layermem._native",
            sources,
            include_dirs=[INCLUDE],
            depends=sorted(str(p) for p in Path("layermem/native").rglob("*.h")),
            cxx_std=17,
            extra_link_args=["-pthread", *INSTRUMENT],
        )
    ],
    # An editable install puts this folder on the path.  By default it is a finder that comes after the path, where a
    # folder called layermem, such as this clone in its parent folder, would be an empty package.
    options={"editable_wheel": {"mode": "compat"}},
    long_description=long_description(),
    long_description_content_type="text/markdown",
    cmdclass={"build_ext": build_native, "build_py": build_data},
)
