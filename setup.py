"""Build layermem._native from every .cpp below layermem/native.

The files of layermem/native/cpu/microkernels are compiled once per instruction set (ISA) of the machine's architecture;
which of them runs is decided at run time (layermem/native/cpu/isa), so one wheel serves every x86-64 machine.

A wheel carries the CUDA kernels' sources and, where nvcc is found, their machine code for all supported architectures
(takes minutes; LAYERMEM_FATBINS=0 leaves it out, and kernels are then compiled at first use).

Environment
    LAYERMEM_BUILD_JOBS=n      parallel compilations (default: one per core)
    LAYERMEM_NATIVE=0          build no extension
    LAYERMEM_WERROR=1          warnings are errors
    LAYERMEM_SANITIZE=LIST     build with gcc's -fsanitize=LIST, e.g. "address,undefined" or "thread", and -O1 -g1, into
                               build/sanitize-LIST/layermem/ (commas as dashes), apart from the ordinary extension
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
ISA_FLAGS = {"base": []}
if X86:
    ISA_FLAGS["avx2"] = ["-mavx2", "-mfma"]
    ISA_FLAGS["avx512"] = ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma"]

SANITIZE = os.environ.get("LAYERMEM_SANITIZE", "")
WARNINGS = ["-Wall", "-Wextra"] + (["-Werror"] if os.environ.get("LAYERMEM_WERROR", "0") != "0" else [])
INSTRUMENT = [f"-fsanitize={SANITIZE}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"] if SANITIZE else []
COMPILE = [*WARNINGS, "-MMD", "-fno-math-errno", "-ffp-contract=off"]
OPTIMIZE = ["-O1", "-g1", "-D_GLIBCXX_ASSERTIONS"] if SANITIZE else ["-O3", "-g0"]


def stale(obj: str, src: str) -> bool:
    """Whether `src` or a header that it included last time (listed by -MMD in the .d file) is newer than its object."""
    rule = Path(obj).with_suffix(".d")
    if not (Path(obj).exists() and rule.exists()):
        return True
    built = Path(obj).stat().st_mtime
    inputs = rule.read_text().replace("\\\n", " ").partition(": ")[2].split()
    return any(not Path(f).exists() or Path(f).stat().st_mtime > built for f in [src, *inputs])


class build_native(build_ext):
    def finalize_options(self):
        if SANITIZE:
            self.inplace = False
            self.build_lib = f"build/sanitize-{SANITIZE.replace(',', '-')}"
            self.build_temp = f"{self.build_lib}/objects"
        super().finalize_options()

    def build_extension(self, ext):
        """Compile the groups of files that need flags of their own; the base class compiles the others and links."""
        ext.depends += ext.sources  # all files decide whether to link, also those taken out of ext.sources here
        objects = self.get_finalized_command("build").build_temp
        microkernels = [source for source in ext.sources if Path(source).parent.name == "microkernels"]
        bindings = [source for source in ext.sources if Path(source).stem.startswith("bind")]
        ext.sources = [source for source in ext.sources if source not in microkernels + bindings]

        def compile_group(group, folder, *flags):
            ext.extra_objects += self.compiler.compile(
                group, output_dir=folder, include_dirs=ext.include_dirs, extra_postargs=[*COMPILE, *flags]
            )

        for isa, flags in ISA_FLAGS.items():
            folder = os.path.join(self.build_temp, isa)
            compile_group(microkernels, folder, *OPTIMIZE, *INSTRUMENT, f"-DLAYERMEM_ISA={isa}", *flags)
        # Bindings only translate, and take longest to compile: not instrumented, and the same objects in all builds.
        compile_group(bindings, os.path.join(objects, "bindings"), "-O1", "-g0")
        super().build_extension(ext)


ARCHITECTURES = ("75", "80", "86", "89", "90", "100", "120")  # the last one as PTX too, for newer GPUs


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
    """Machine code for every architecture beside `source`; a failure is printed, and only costs time at first use."""
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
            extra_compile_args=[*COMPILE, *OPTIMIZE, *INSTRUMENT],
            extra_link_args=["-pthread", *INSTRUMENT],
        )
    ],
    # An editable install puts this folder on the path.  By default it is a finder that comes after the path, where a
    # folder called layermem, such as this clone in its parent folder, would be an empty package.
    options={"editable_wheel": {"mode": "compat"}},
    cmdclass={"build_ext": build_native, "build_py": build_kernels},
)
