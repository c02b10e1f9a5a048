"""NVRTC by ctypes: the compiler as a library, which needs neither a GPU nor a host compiler."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from layermem.backends.cuda.kernel_images.cuda_version import CudaVersion
from layermem.errors import DeviceError

Program = ctypes.c_void_p
OPTIONS = ("-default-device",)  # as in nvcc, a generic lambda of a kernel needs no __device__


class Nvrtc:
    def __init__(self, library: ctypes.CDLL):
        self.library = library
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "tell its version")
        self.cuda = CudaVersion(major.value, minor.value)
        self.version = f"nvrtc {self.cuda}"
        self.capabilities = self._capabilities()

    @classmethod
    def find(cls, suits: Callable[[CudaVersion], bool] = lambda cuda: True) -> Nvrtc | None:
        """The first library, of NVIDIA's wheels, toolkits and the system, that loads and `suits`; None if none does."""
        for path in _candidates():
            with suppress(OSError, AttributeError, DeviceError):
                found = cls(ctypes.CDLL(str(path)))
                if suits(found.cuda):
                    for builtins in sorted(path.parent.glob("libnvrtc-builtins.so*")):  # NVRTC looks for it by name
                        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
                    return found
        return None

    def _capabilities(self) -> tuple[int, ...]:
        count = ctypes.c_int()
        self._check(self.library.nvrtcGetNumSupportedArchs(ctypes.byref(count)), "tell its architectures")
        known = (ctypes.c_int * count.value)()
        self._check(self.library.nvrtcGetSupportedArchs(known), "tell its architectures")
        return tuple(known)

    def cubin(self, source: str, architecture: str, flags: tuple[str, ...]) -> bytes:
        """Compile to machine code of sm_90 and the like."""
        return self._compiled(source, architecture, flags, "nvrtcGetCUBIN")

    def ptx(self, source: str, architecture: str, flags: tuple[str, ...]) -> bytes:
        """Compile to PTX of compute_90 and the like."""
        return self._compiled(source, architecture, flags, "nvrtcGetPTX")

    def _compiled(self, source: str, architecture: str, flags: tuple[str, ...], wanted: str) -> bytes:
        program = Program()
        made = self.library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None)
        self._check(made, "take the source")
        try:
            options = [f"--gpu-architecture={architecture}", *OPTIONS, *flags]
            array = (ctypes.c_char_p * len(options))(*map(str.encode, options))
            status = self.library.nvrtcCompileProgram(program, len(options), array)
            if status:
                log = self._bytes(program, "nvrtcGetProgramLog").decode(errors="replace").strip("\0\n ")
                why = log or self._said(status)
                raise DeviceError(
                    f"NVRTC cannot compile the kernels for {architecture}: {why}; install another version of CUDA, or "
                    "nvcc beside it"
                )
            return self._bytes(program, wanted)
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))

    def _bytes(self, program: Program, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self.library, f"{what}Size")(program, ctypes.byref(size)), what)
        out = ctypes.create_string_buffer(size.value)
        self._check(getattr(self.library, what)(program, out), what)
        return out.raw

    def _check(self, status: int, what: str) -> None:
        if status:
            raise DeviceError(f"NVRTC cannot {what}: {self._said(status)}")

    def _said(self, status: int) -> str:
        text: bytes = self.library.nvrtcGetErrorString(status)
        return text.decode()


def _candidates() -> Iterator[Path]:
    folders = [Path(entry) for entry in sys.path if entry]
    for folder in folders:
        for inside in ("nvidia/cu*/lib", "nvidia/cuda_nvrtc/lib", "torch/lib"):
            yield from sorted(folder.glob(f"{inside}/libnvrtc.so*"), reverse=True)
    for toolkit in filter(None, (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")):
        yield from sorted(Path(toolkit).glob("lib*/libnvrtc.so*"), reverse=True)
    named = ctypes.util.find_library("nvrtc")
    if named:
        yield Path(named)
