"""Kernel images for a GPU: prebuilt if they ship with the package, otherwise compiled once and kept.

1  <module>.fatbin in the folder that LAYERMEM_KERNELS names, or next to the sources in the package
2  the disk cache (LAYERMEM_CACHE, else layermem/ in XDG_CACHE_HOME or ~/.cache), under a hash of the source, the
   flags, the architecture and the compiler
3  NVRTC, from NVIDIA's wheel, a toolkit, or another package that brings it
4  nvcc, of a toolkit or of NVIDIA's wheel (toolkit.py), also for what NVRTC refuses

A GPU that is newer than the compiler gets PTX of the newest architecture that the compiler knows, which the driver
compiles.  Compilers whose code the driver does not load are skipped: it loads machine code of its own major version of
CUDA and of earlier ones, and PTX of its own version and of earlier ones.

One process compiles an image while the others wait for it (`locked`); an image is complete or absent (utils/files.py).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol, TextIO

from layermem.backends.cuda.kernel_images.cuda_version import CudaVersion, driver_version
from layermem.backends.cuda.kernel_images.nvrtc import Nvrtc
from layermem.backends.cuda.kernel_images.sources import SOURCES, architecture, closure
from layermem.backends.cuda.kernel_images.toolkit import program
from layermem.errors import CudaUnavailable, DeviceError, InputError
from layermem.planning.gpus import OLDEST_CAPABILITY
from layermem.utils.files import write_atomically

FLAGS = ("--std=c++17", "--fmad=false")  # a product and a sum are fused only by an explicit fmaf
CODE, PTX = "sm_", "compute_"  # prefixes of architectures


class KernelCompiler(Protocol):
    @property
    def version(self) -> str: ...

    @property
    def cuda(self) -> CudaVersion:
        """The version of the toolkit that the compiler belongs to."""

    @property
    def capabilities(self) -> Collection[int]:
        """Compute capabilities that it makes machine code for; empty if it does not state them."""

    def cubin(self, source: str, architecture: str, flags: tuple[str, ...]) -> bytes:
        """Machine code for sm_90 and the like; DeviceError, with the compiler's text, if it refuses the source."""

    def ptx(self, source: str, architecture: str, flags: tuple[str, ...]) -> bytes:
        """PTX for compute_90 and the like, with the final zero that the driver expects; DeviceError as from `cubin`."""


class Recipe(NamedTuple):
    """The inputs of compiling a module for a GPU."""

    module: str
    source: str
    target: str
    compiler: KernelCompiler

    @property
    def path(self) -> Path:
        """The path at which the image is kept."""
        digest = hashlib.sha256(repr((self.source, FLAGS, self.target, self.compiler.version)).encode()).hexdigest()
        ending = "cubin" if self.target.startswith(CODE) else "ptx"
        return cache_folder() / f"{self.module}-{self.target}-{digest[:24]}.{ending}"

    def kept(self) -> bytes | None:
        with suppress(OSError):
            if _is_private(self.path.parent):
                return self.path.read_bytes()
        return None

    def compiled(self) -> bytes:
        """Compile the image and keep it."""
        compile = self.compiler.cubin if self.target.startswith(CODE) else self.compiler.ptx
        made = compile(self.source, self.target, FLAGS)
        with suppress(OSError, InputError):  # a cache that is not writable only costs time
            if has_cache():
                write_atomically(self.path, made)
        return made


def image(module: str, capability: str) -> bytes:
    """The image that the driver loads for cuda/<module>.cu on a GPU of compute capability "90", for example."""
    found = prebuilt(module)
    if found is not None:
        return found
    recipe = recipe_of(module, capability)
    kept = recipe.kept()
    if kept is not None:
        return kept
    with locked(recipe.path):
        return recipe.kept() or recipe.compiled()


def recipe_of(module: str, capability: str) -> Recipe:
    if int(capability) < OLDEST_CAPABILITY:
        raise CudaUnavailable(
            f"this GPU has compute capability {capability}; the kernels need {OLDEST_CAPABILITY} or later"
        )
    compiler = find_compiler()
    target, driver = target_of(module, capability, compiler.capabilities), driver_version()
    if driver is not None and target.startswith(PTX) and compiler.cuda > driver:
        raise CudaUnavailable(
            f"{compiler.version} does not know compute capability {capability}, and its PTX is for drivers of CUDA "
            f"{compiler.cuda} or later; this one supports {driver}: update the driver"
        )
    return Recipe(module, whole_source(module), target, compiler)


@contextmanager
def locked(image: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of an image while it is compiled; yields False if another process has it, unless this one is to
    `wait`. The lock ends with the process, however that ends.  Without a cache there are no locks."""
    path = image.with_name(f".{image.name}.lock")
    with ExitStack() as held:
        is_mine = True
        with suppress(OSError):
            if has_cache():
                file = held.enter_context(path.open("w"))
                is_mine = _is_locked(file, wait)
        if is_mine:
            held.callback(_remove, path)  # processes that wait for it find the image
        yield is_mine


def _is_locked(file: TextIO, wait: bool) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def has_cache() -> bool:
    """Whether images can be kept; makes the folder if necessary."""
    with suppress(OSError):
        cache_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        return _is_private(cache_folder()) and os.access(cache_folder(), os.W_OK)
    return False


def prebuilt(module: str) -> bytes | None:
    """The fatbin of a module, from the first folder that has one; None if there is none."""
    for folder in prebuilt_folders():
        with suppress(OSError):
            return (folder / f"{module}.fatbin").read_bytes()
    return None


def target_of(module: str, capability: str, known: Collection[int]) -> str:
    """The target of a module for a GPU: machine code, or PTX if the compiler knows only older GPUs."""
    if not known or int(capability) in known:
        return f"{CODE}{architecture(module, capability)}"
    older = [each for each in known if each <= int(capability)]
    if not older:
        raise CudaUnavailable(f"the compiler of kernels has left out compute capability {capability}: use an older one")
    return f"{PTX}{max(older)}"


def _is_private(folder: Path) -> bool:
    """Whether only this user can have put kernels there, who is the owner; others must not have write access."""
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
def find_compiler() -> KernelCompiler:
    """The first compiler whose code the driver loads; any compiler if there is no driver."""
    driver = driver_version()

    def suits(cuda: CudaVersion) -> bool:
        return driver is None or cuda.major <= driver.major

    nvrtc, nvcc = Nvrtc.find(suits), Nvcc.find(suits)
    if nvrtc is not None and nvcc is not None:
        return WithFallback(nvrtc, nvcc)
    found = nvrtc or nvcc
    if found is not None:
        return found
    newer = Nvrtc.find() or Nvcc.find()
    if newer is not None:
        raise CudaUnavailable(
            f"the compiler of CUDA {newer.cuda} makes kernels for drivers of CUDA {newer.cuda.major}.0 or later, and "
            f"this driver supports {driver}: `layermem setup-cuda` installs one that suits it, or update the driver"
        )
    raise CudaUnavailable(
        "there are no prebuilt kernels for this GPU, and nothing to compile them with: `layermem setup-cuda` installs "
        "NVRTC, or put nvcc on the PATH"
    )


class WithFallback:
    """A compiler with a fallback for sources that it refuses; if both refuse, the error is the first one's."""

    def __init__(self, first: KernelCompiler, second: KernelCompiler):
        self.first, self.second = first, second
        self.version, self.cuda, self.capabilities = first.version, first.cuda, first.capabilities

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
        release = re.search(r"release (\d+)\.(\d+)", answer.stdout)
        self.cuda = CudaVersion(*map(int, release.groups())) if release else CudaVersion(0, 0)
        said = subprocess.run([path, "--list-gpu-code"], capture_output=True, text=True).stdout
        self.capabilities = tuple(map(int, re.findall(r"sm_(\d+)\b", said)))

    @classmethod
    def find(cls, suits: Callable[[CudaVersion], bool] = lambda cuda: True) -> Nvcc | None:
        path = program("nvcc")
        with suppress(OSError, subprocess.CalledProcessError, IndexError):
            found = cls(path) if path else None
            return found if found is not None and suits(found.cuda) else None
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
                what = f"nvcc cannot compile the kernels for {architecture}: {done.stderr.strip()}"
                raise DeviceError(f"{what}; install another version of CUDA, or NVRTC beside it")
            return out.read_bytes()
