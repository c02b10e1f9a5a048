"""Builds the fake libcuda.so.1 and runs Python programs with it.

    finished = fake_driver.run("import pycuda.driver as cuda; ...", streams="random", seed=3, memory=64 << 20)

The program runs in a process of its own, with unmodified PyCUDA; README.md lists the settings.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from tests.emulator import build as builder

DRIVER = Path(__file__).resolve().parent / "driver"
SOURCES = ("device.cpp", "memory.cpp", "streams.cpp", "graphs.cpp", "images.cpp", "modules.cpp", "transfers.cpp")
NCCL, NVRTC = "nccl.cpp", "nvrtc.cpp"
FLAGS = ("-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", "-U_FORTIFY_SOURCE", "-Wall", "-Wextra")
STREAMS = ("eager", "random", "awaited-first", "awaited-last")


def pycuda_is_installed() -> bool:
    return importlib.util.find_spec("pycuda") is not None


def library() -> Path:
    """The folder of the fake driver, libcuda.so.1, built unless it is in the cache."""
    unserved = "".join(
        f'extern "C" __attribute__((weak, visibility("default"))) int {name}(void) {{ return 801; }}\n'
        for name in _functions_that_pycuda_calls()
    )
    parts = [*_objects(SOURCES), builder.object_file(_written("unserved.cpp", unserved), FLAGS)]
    return builder.linked("libcuda.so.1", parts, ("-shared", "-Wl,-soname,libcuda.so.1", "-ldl", "-pthread")).parent


def nccl() -> Path:
    """The folder of the fake NCCL, libnccl.so.2."""
    flags = ("-shared", "-Wl,-soname,libnccl.so.2", "-ldl", "-pthread")
    return builder.linked("libnccl.so.2", _objects([NCCL]), flags).parent


def nvrtc() -> Path:
    """A folder for the front of sys.path: it holds the fake NVRTC at the path of NVIDIA's wheels."""
    found = builder.linked("libnvrtc.so.13", _objects([NVRTC]), ("-shared", "-Wl,-soname,libnvrtc-fake.so"))
    folder = found.parent / "nvidia" / "cuda_nvrtc" / "lib"
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        (folder / found.name).symlink_to(found)
    return found.parent


def prebuild() -> None:
    """Compile everything that does not depend on PyCUDA."""
    _objects([*SOURCES, NCCL, NVRTC])


def _objects(sources: Sequence[str]) -> list[Path]:
    """Compiled sources of the driver, on all cores."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda source: builder.object_file(DRIVER / source, FLAGS), sources))


def environment(**settings: object) -> dict[str, str]:
    """The environment of this process, with the fake driver first among the libraries and FAKE_DRIVER_<SETTING> set."""
    folders = [str(library()), str(nccl()), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    path = [str(builder.ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    chosen = {
        f"FAKE_{'' if name.startswith(('nccl', 'nvrtc')) else 'DRIVER_'}{name.upper()}": str(value)
        for name, value in settings.items()
    }
    unchecked = {"LAYERMEM_CHECK": os.environ.get("LAYERMEM_CHECK", "off")}  # emulated, each run would take seconds
    return {**os.environ, **unchecked, "LD_LIBRARY_PATH": ":".join(folders), "PYTHONPATH": ":".join(path), **chosen}


def run(program: str | Path, *arguments: str, **settings: object) -> subprocess.CompletedProcess[str]:
    """Run a Python file, or source text, on the fake driver; return when it has finished, with any exit code."""
    script = [str(program)] if isinstance(program, Path) else ["-c", program]
    command = [sys.executable, *script, *arguments]
    return subprocess.run(command, env=environment(**settings), capture_output=True, text=True, cwd=builder.ROOT)


def _functions_that_pycuda_calls() -> Sequence[str]:
    """The functions of libcuda that PyCUDA's extension needs: the loader requires every one of them."""
    found = importlib.util.find_spec("pycuda")
    if found is None or not found.submodule_search_locations:
        return ()
    (extension,) = Path(found.submodule_search_locations[0]).glob("_driver*.so")
    listed = subprocess.run(["nm", "-D", "--undefined-only", extension], capture_output=True, text=True, check=True)
    return sorted(set(re.findall(r"\bU (cu[A-Z]\w*)$", listed.stdout, re.MULTILINE)))


def _written(name: str, text: str) -> Path:
    path = builder.CACHE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(text)
        partial.rename(path)
    return path
