"""Build layermem._native from every .cpp below layermem/native, and what a wheel carries besides.

tools/compile_native.py compiles, and documents its environment variables; this file links.

A wheel carries the example nets of prototxt/, the pages of docs/, and the CUDA kernels' sources, which are compiled at
first use.  With LAYERMEM_FATBINS=1 nvcc makes their machine code for all supported architectures, which takes a long
time.
LAYERMEM_NATIVE=0 builds no extension.
"""

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pybind11.setup_helpers import Pybind11Extension, build_ext
from setuptools import setup
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
import compile_native


class build_native(build_ext):
    """Links what compile_native makes; a build with sanitizers goes to build/sanitize-LIST/layermem/, apart."""

    def finalize_options(self):
        if compile_native.SANITIZE:
            self.inplace = False
            self.build_lib = f"build/sanitize-{compile_native.SANITIZE.replace(',', '-')}"
        super().finalize_options()

    def build_extension(self, ext):
        work = [*compile_native.binding_compilations(), *compile_native.kernel_compilations()]
        ext.extra_objects = [str(path) for path in compile_native.compile_all(work)]
        ext.depends = [*ext.sources, *ext.depends, *ext.extra_objects]  # a newer one of these decides to link
        ext.sources = []
        super().build_extension(ext)


ARCHITECTURES = ("75", "80", "86", "89", "90", "100", "120")
PTX_TOO = ("100", "120")  # for newer GPUs: 100 for those between both, such as 110


class build_data(build_py):
    """Ships prototxt/ as example_nets/, the pages of docs/ as pages/, and cuda/ as cuda_kernels/, unless the package is
    used in place."""

    def run(self):
        super().run()
        if getattr(self, "editable_mode", False):
            return
        package = Path(self.build_lib, "layermem")
        unwanted = shutil.ignore_patterns("lock.mdb", "__pycache__")
        for source, name in (("prototxt", ""), ("docs/python_layers", "python_layers")):
            shutil.copytree(source, package / "example_nets" / name, ignore=unwanted, dirs_exist_ok=True)
        for page in Path("docs").rglob("*.md"):
            target = package / "pages" / page.relative_to("docs")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(page, target)
        folder = package / "cuda_kernels"
        folder.mkdir(parents=True, exist_ok=True)
        for source in sorted(Path("cuda").glob("*.cu*")):
            shutil.copy(source, folder)
        if os.environ.get("LAYERMEM_FATBINS", "0") != "0":
            nvcc = shutil.which("nvcc")
            if nvcc is None:
                sys.exit("LAYERMEM_FATBINS needs nvcc on the PATH; add it, or leave LAYERMEM_FATBINS out")
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(lambda source: fatbin(nvcc, source), sorted(folder.glob("*.cu"))))


def fatbin(nvcc, source):
    """Machine code for every architecture beside `source`; a failure is printed, and only costs time at first use."""
    own = re.search(r"_sm(\d+)([a-z])$", source.stem)  # convolution_tf32_sm90a: instructions that only sm_90a has
    names = [a + own[2] if own and own[1] == a else a for a in ARCHITECTURES]
    codes = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in names]
    codes += [f"-gencode=arch=compute_{a},code=compute_{a}" for a in PTX_TOO]
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
            depends=sorted(str(p) for p in Path("layermem/native").rglob("*.h")),
            cxx_std=17,
            extra_link_args=["-pthread", *compile_native.INSTRUMENT],
        )
    ],
    # An editable install puts this folder on the path.  By default it is a finder that comes after the path, where a
    # folder called layermem, such as this clone in its parent folder, would be an empty package.
    options={"editable_wheel": {"mode": "compat"}},
    long_description=long_description(),
    long_description_content_type="text/markdown",
    cmdclass={"build_ext": build_native, "build_py": build_data},
)
