"""Build layermem._native: every .cpp below layermem/native, with vector-unit flags by file name.

A file that ends in _avx2.cpp or _avx512.cpp is compiled for that unit, and only such a file: the choice
between them is made at run time (layermem/native/cpu), so one wheel serves every x86-64 machine.

A wheel carries the CUDA kernels' sources, and where nvcc is found their machine code for all cards as well (some
minutes; LAYERMEM_FATBINS=0 leaves it out, and a card's own is then compiled when it is first used).
"""

import os
import platform
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pybind11.setup_helpers import ParallelCompile, Pybind11Extension, build_ext
from setuptools import setup
from setuptools.command.build_py import build_py

X86 = platform.machine().lower() in ("x86_64", "amd64")
UNIT_FLAGS = {
    "_avx2": ["-mavx2", "-mfma"],
    "_avx512": ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma"],
}


def unit_of(source: str) -> str | None:
    return next((unit for unit in UNIT_FLAGS if Path(source).stem.endswith(unit)), None)


def newest_header(sources: list[str]) -> float:
    return max((p.stat().st_mtime for s in {Path(s).parents[-2] for s in sources} for p in s.rglob("*.h")), default=0)


def stale(obj: str, src: str) -> bool:
    """An object is rebuilt when its source or any header of ours is newer."""
    if not Path(obj).exists():
        return True
    built = Path(obj).stat().st_mtime
    return built < max(Path(src).stat().st_mtime, newest_header([src]))


class build_native(build_ext):
    def build_extensions(self):
        compile_one = self.compiler._compile

        def with_unit(obj, src, ext, cc_args, extra_postargs, pp_opts):
            unit = unit_of(src)
            flags = UNIT_FLAGS[unit] if unit and X86 else []
            if Path(src).stem.startswith("bind"):  # only translates: quick to compile matters more than quick
                flags = ["-O1"]
            compile_one(obj, src, ext, cc_args, [*extra_postargs, *flags], pp_opts)

        self.compiler._compile = with_unit
        super().build_extensions()


ARCHITECTURES = ("75", "80", "86", "89", "90", "100", "120")  # the last one as PTX too, for newer cards


class build_kernels(build_py):
    """Ships cuda/ as layermem/cuda_kernels, unless the package is used in place."""

    def run(self):
        super().run()
        if getattr(self, "editable_mode", False):
            return
        folder = Path(self.build_lib, "layermem", "cuda_kernels")
        folder.mkdir(parents=True, exist_ok=True)
        for source in sorted(Path("cuda").glob("*.cu*")):
            shutil.copy(source, folder)
        nvcc = shutil.which("nvcc")
        if nvcc and os.environ.get("LAYERMEM_FATBINS", "1") != "0":
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(lambda source: fatbin(nvcc, source), sorted(folder.glob("*.cu"))))


def fatbin(nvcc, source):
    """Machine code for every architecture beside `source`; a failure is told, and costs nothing but time later."""
    codes = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in ARCHITECTURES]
    codes.append(f"-gencode=arch=compute_{ARCHITECTURES[-1]},code=compute_{ARCHITECTURES[-1]}")
    flags = ["--std=c++17", "--fmad=false", "-O3", "--compress-mode=size", *codes]
    out = source.with_suffix(".fatbin")
    done = subprocess.run([nvcc, *flags, "-fatbin", str(source), "-o", str(out)], capture_output=True, text=True)
    if done.returncode:
        print(f"no prebuilt kernels of {source.name}: {done.stderr.strip()}", file=sys.stderr)
        out.unlink(missing_ok=True)


ParallelCompile("LAYERMEM_BUILD_JOBS", needs_recompile=stale).install()

sources = sorted(str(p) for p in Path("layermem/native").rglob("*.cpp"))
native = os.environ.get("LAYERMEM_NATIVE", "1") != "0"  # the Makefile installs first, and builds in place once
setup(
    ext_modules=[]
    if not native
    else [
        Pybind11Extension(
            "layermem._native",
            sources,
            include_dirs=["layermem/native"],
            depends=sorted(str(p) for p in Path("layermem/native").rglob("*.h")),
            cxx_std=17,
            extra_compile_args=["-O3", "-g0", "-Wall", "-Wextra", "-fno-math-errno", "-ffp-contract=off"],
            extra_link_args=["-pthread"],
        )
    ],
    cmdclass={"build_ext": build_native, "build_py": build_kernels},
)
