"""Kernel images for a GPU: prebuilt where they ship with the package, else compiled once and kept.

1  <module>.fatbin in the folder that LAYERMEM_KERNELS names, or beside the sources in the package
2  the disk cache (LAYERMEM_CACHE, else layermem/ in XDG_CACHE_HOME or ~/.cache), under a hash of the source, the
   flags, the architecture and the compiler
3  NVRTC, from NVIDIA's wheel, a toolkit, or another package that brings it
4  nvcc, of a toolkit or of NVIDIA's wheel (toolkit.py), also for what NVRTC refuses

A GPU that is newer than the compiler gets PTX of the newest architecture that the compiler knows, which the driver
compiles.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Collection, Iterator
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
CODE, PTX = "sm_", "compute_"  # how names of architectures begin


class Compiler(Protocol):
    @property
    def version(self) -> str: ...

    @property
    def capabilities(self) -> Collection[int]:
        """That it makes machine code for; none if it does not say."""

    def cubin(self, source: str, architecture: str, flags: tuple[str, ...]) -> bytes:
        """Machine code of sm_90 and the like; DeviceError with the compiler's words where it refuses the source."""

    def ptx(self, source: str, architecture: str, flags: tuple[str, ...]) -> bytes:
        """PTX of compute_90 and the like, ended by a zero as the driver takes it; DeviceError as from `cubin`."""


def image(module: str, capability: str) -> bytes:
    """What the driver loads for cuda/<module>.cu on a GPU of compute capability `capability`, such as "90"."""
    found = prebuilt(module)
    if found is not None:
        return found
    if int(capability) < OLDEST_CAPABILITY:
        raise CudaUnavailable(
            f"this GPU has compute capability {capability}; the kernels need {OLDEST_CAPABILITY} or later"
        )
    compiler = find_compiler()
    source, target = whole_source(module), target_of(module, capability, compiler.capabilities)
    digest = hashlib.sha256(repr((source, FLAGS, target, compiler.version)).encode()).hexdigest()
    ending = "cubin" if target.startswith(CODE) else "ptx"
    cached = cache_folder() / f"{module}-{target}-{digest[:24]}.{ending}"
    with suppress(OSError):
        if _is_private(cached.parent):
            return cached.read_bytes()
    made = (compiler.cubin if target.startswith(CODE) else compiler.ptx)(source, target, FLAGS)
    with suppress(OSError, InputError):  # a cache that cannot be written costs time, nothing else
        cached.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _is_private(cached.parent):
            write_atomically(cached, made)
    return made


def prebuilt(module: str) -> bytes | None:
    for folder in prebuilt_folders():
        with suppress(OSError):
            return (folder / f"{module}.fatbin").read_bytes()
    return None


def target_of(module: str, capability: str, known: Collection[int]) -> str:
    """What a module is compiled to for a GPU: machine code, or PTX where the compiler knows only older GPUs."""
    if not known or int(capability) in known:
        return f"{CODE}{architecture(module, capability)}"
    older = [each for each in known if each <= int(capability)]
    if not older:
        raise CudaUnavailable(f"the compiler of kernels has left out compute capability {capability}: use an older one")
    return f"{PTX}{max(older)}"


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
    nvrtc, nvcc = Nvrtc.find(), Nvcc.find()
    if nvrtc is not None and nvcc is not None:
        return WithFallback(nvrtc, nvcc)
    found = nvrtc or nvcc
    if found is None:
        raise CudaUnavailable(
            "there are no prebuilt kernels for this GPU, and nothing to compile them with: "
            "pip install nvidia-cuda-nvrtc, or put nvcc on the PATH"
        )
    return found


class WithFallback:
    """A compiler, and another one for what the first refuses; where both do, the error is that of the first."""

    def __init__(self, first: Compiler, second: Compiler):
        self.first, self.second = first, second
        self.version, self.capabilities = first.version, first.capabilities

    def cubin(self, source: str, architecture: str, flags: tuple[str, ...]) -> bytes:
        try:
            return self.first.cubin(source, architecture, flags)
        except DeviceError as refused:
            with suppress(DeviceError):
                return self.second.cubin(source, architecture, flags)
            raise refused

    def ptx(self, source: str, architecture: str, flags: tuple[str, ...]) -> bytes:
        try:
            return self.first.ptx(source, architecture, flags)
        except DeviceError as refused:
            with suppress(DeviceError):
                return self.second.ptx(source, architecture, flags)
            raise refused


class Nvcc:
    """The toolkit's compiler, run as a program."""

    def __init__(self, path: str):
        self.path = path
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
        self.version = answer.stdout.strip().splitlines()[-1]
        said = subprocess.run([path, "--list-gpu-code"], capture_output=True, text=True).stdout
        self.capabilities = tuple(map(int, re.findall(r"sm_(\d+)\b", said)))

    @classmethod
    def find(cls) -> Nvcc | None:
        found = program("nvcc")
        with suppress(OSError, subprocess.CalledProcessError, IndexError):
            return cls(found) if found else None
        return None

    def cubin(self, source: str, architecture: str, flags: tuple[str, ...]) -> bytes:
        return self._compiled(source, architecture, flags, "-cubin")

    def ptx(self, source: str, architecture: str, flags: tuple[str, ...]) -> bytes:
        return self._compiled(source, architecture, flags, "-ptx") + b"\0"

    def _compiled(self, source: str, architecture: str, flags: tuple[str, ...], wanted: str) -> bytes:
        with tempfile.TemporaryDirectory(prefix="layermem-") as folder:
            path, out = Path(folder) / "kernels.cu", Path(folder) / "kernels.out"
            path.write_text(source, encoding="utf-8")
            command = [self.path, *flags, "-O3", f"-arch={architecture}", wanted, str(path), "-o", str(out)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise DeviceError(f"nvcc cannot compile the kernels for {architecture}: {done.stderr.strip()}")
            return out.read_bytes()
