"""Build layermem._native: every .cpp below layermem/native, with vector-unit flags by file name.

A file that ends in _avx2.cpp or _avx512.cpp is compiled for that unit, and only such a file: the choice
between them is made at run time (layermem/native/cpu), so one wheel serves every x86-64 machine.
"""

import platform
from pathlib import Path

from pybind11.setup_helpers import ParallelCompile, Pybind11Extension, build_ext
from setuptools import setup

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
            compile_one(obj, src, ext, cc_args, [*extra_postargs, *flags], pp_opts)

        self.compiler._compile = with_unit
        super().build_extensions()


ParallelCompile("LAYERMEM_BUILD_JOBS", needs_recompile=stale).install()

sources = sorted(str(p) for p in Path("layermem/native").rglob("*.cpp"))
setup(
    ext_modules=[
        Pybind11Extension(
            "layermem._native",
            sources,
            include_dirs=["layermem/native"],
            cxx_std=17,
            extra_compile_args=["-O3", "-g0", "-Wall", "-Wextra", "-fno-math-errno", "-ffp-contract=off"],
            extra_link_args=["-pthread"],
        )
    ],
    cmdclass={"build_ext": build_native},
)
