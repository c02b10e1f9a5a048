"""Kernel images for a GPU: prebuilt where they ship with the package, else compiled once and kept.

1  <module>.fatbin in the folder that LAYERMEM_KERNELS names, or beside the sources in the package
2  the disk cache (LAYERMEM_CACHE, else layermem/ in XDG_CACHE_HOME or ~/.cache), under a hash of the source, the
   flags, the architecture and the compiler
3  NVRTC, from NVIDIA's wheel, a toolkit, or another package that brings it
4  nvcc, of a toolkit or of NVIDIA's wheel (toolkit.py)
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Protocol

from layermem.backends.cuda.kernel_images.nvrtc import Nvrtc
from layermem.backends.cuda.kernel_images.sources import SOURCES, architecture, closure
from layermem.backends.cuda.kernel_images.toolkit import program
from layermem.errors import CudaUnavailable, DeviceError, InputError
from layermem.planning.gpus import OLDEST_CAPABILITY
from layermem.utils.files import write_atomically

FLAGS = ("--std=c++17", "--fmad=false")  # no product and sum become one unless the kernel says fmaf


class Compiler(Protocol):
    @property
    def version(self) -> str: ...

    def cubin(self, source: str, architecture: str, flags: tuple[str, ...]) -> bytes:
        """DeviceError with the compiler's words where it refuses the source."""


def image(module: str, capability: str) -> bytes:
    """What the driver loads for cuda/<module>.cu on a GPU of compute capability `capability`, such as "90"."""
    for folder in prebuilt_folders():
        with suppress(OSError):
            return (folder / f"{module}.fatbin").read_bytes()
    if int(capability) < OLDEST_CAPABILITY:
        raise CudaUnavailable(
            f"this GPU has compute capability {capability}; the kernels need {OLDEST_CAPABILITY} or later"
        )
    compiler = find_compiler()
    source, target = whole_source(module), f"sm_{architecture(module, capability)}"
    digest = hashlib.sha256(repr((source, FLAGS, target, compiler.version)).encode()).hexdigest()
    cached = cache_folder() / f"{module}-{target}-{digest[:24]}.cubin"
    with suppress(OSError):
        if _is_private(cached.parent):
            return cached.read_bytes()
    made = compiler.cubin(source, target, FLAGS)
    with suppress(OSError, InputError):  # a cache that cannot be written costs time, nothing else
        cached.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _is_private(cached.parent):
            write_atomically(cached, made)
    return made


def _is_private(folder: Path) -> bool:
    """Whether only this user can have put kernels there: it is the owner, and others may not write to it."""
    if not hasattr(os, "getuid"):  # Windows, where a user's folders are private
        return True
    found = folder.stat()
    return found.st_uid == os.getuid() and not found.st_mode & 0o022


def prebuilt_folders() -> Iterator[Path]:
    named = os.environ.get("LAYERMEM_KERNELS")
    if named:
        yield Path(named)
    yield SOURCES


def cache_folder() -> Path:
    named = os.environ.get("LAYERMEM_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "layermem" / "kernels"


def whole_source(module: str) -> str:
    """The module with its headers in place of their includes: one text for any compiler."""
    parts = []
    for path in closure(module):
        text = re.sub(
            r"^#(?:pragma once|include \"[^\"]+\")$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE
        )
        parts.append(f'#line 1 "{path.name}"\n{text}')
    return "\n".join(parts)


@cache
def find_compiler() -> Compiler:
    found = Nvrtc.find() or Nvcc.find()
    if found is None:
        raise CudaUnavailable(
            "there are no prebuilt kernels for this GPU, and nothing to compile them with: "
            "pip install nvidia-cuda-nvrtc, or put nvcc on the PATH"
        )
    return found


class Nvcc:
    """The toolkit's compiler, run as a program."""

    def __init__(self, path: str):
        self.path = path
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
        self.version = answer.stdout.strip().splitlines()[-1]

    @classmethod
    def find(cls) -> Nvcc | None:
        found = program("nvcc")
        with suppress(OSError, subprocess.CalledProcessError, IndexError):
            return cls(found) if found else None
        return None

    def cubin(self, source: str, architecture: str, flags: tuple[str, ...]) -> bytes:
        with tempfile.TemporaryDirectory(prefix="layermem-") as folder:
            path, out = Path(folder) / "kernels.cu", Path(folder) / "kernels.cubin"
            path.write_text(source, encoding="utf-8")
            command = [self.path, *flags, "-O3", f"-arch={architecture}", "-cubin", str(path), "-o", str(out)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise DeviceError(f"nvcc cannot compile the kernels for {architecture}: {done.stderr.strip()}")
            return out.read_bytes()
