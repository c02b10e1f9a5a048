"""Hosts of emulated kernels: this process, or a worker that a sanitizer may end."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import re
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

OFFSET = re.compile(r"@([0-9a-f]+)@")
UNDEFINED = (  # explains the signal of UBSan
    "undefined: an overflow, a shift or an index out of range, a division by zero, or a misaligned address"
)
PRIMITIVES = re.compile(r"/(primitives|warpgroup)\.cuh:")


class EmulationError(RuntimeError):
    """A kernel made an error; the text describes it and its place."""


@dataclass(frozen=True)
class Packed:
    """A kernel's argument struct as bytes, and the arrays of its pointers: (position in bytes, array)."""

    data: bytes
    pointers: tuple[tuple[int, np.ndarray], ...] = ()


@dataclass(frozen=True)
class BankUse:
    """Bank conflicts of one instruction that accesses shared memory, over a launch."""

    place: str  # file:line
    verb: str  # read or write
    bytes_per_lane: int
    executed: int  # executions by a warp
    wavefronts: int
    least: int  # wavefronts without any conflict


class Launch(ctypes.Structure):
    """LmLaunch of host/machine.hpp."""

    _fields_ = [
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("order", ctypes.c_uint32),
        ("copies", ctypes.c_uint32),
        ("banks", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
    ]


_libraries: list[Library] = []
KEPT = (
    16  # modules that may keep the stacks of their threads, with two mappings each; Linux grants a process some 65,000
)


def close_stacks() -> None:
    """Release the mappings of threads' stacks in all modules of this process, until they launch again."""
    for library in _libraries:
        library.library.lm_emu_close_stacks()


def in_use() -> Sequence[Library]:
    """The modules of mode race that this process has loaded."""
    return [library for library in _libraries if "-race-" in library.path.name]


class Library:
    """A module in this process: kernels work on the memory of the arrays."""

    def __init__(self, path: Path):
        self.path = path
        if len(_libraries) % KEPT == 0:
            close_stacks()
        self.library = ctypes.CDLL(str(path))
        for call in (self.library.lm_emu_message, self.library.lm_emu_banks, self.library.lm_emu_reached):
            call.restype = ctypes.c_char_p
        self.library.lm_emu_launch.argtypes = (
            ctypes.c_char_p,
            ctypes.POINTER(Launch),
            ctypes.c_char_p,
            ctypes.c_uint64,
        )
        _libraries.append(self)

    def run(self, name: str, launch: Launch, args: Packed) -> None:
        if self.library.lm_emu_launch(name.encode(), launch, args.data, len(args.data)):
            message = self.library.lm_emu_message().decode()
            raise EmulationError(f"{name}: {_with_lines(message, self.path)}")

    def bank_use(self) -> list[BankUse]:
        lines = _with_lines(self.library.lm_emu_banks().decode(), self.path).splitlines()
        rows = (line.split() for line in lines)
        return [BankUse(place, verb, *map(int, numbers)) for place, verb, *numbers in rows]

    def reached(self) -> dict[str, list[int]]:
        """By file and line, the calls of barriers, waits and fences that launches have made so far (mode race)."""
        said = self.library.lm_emu_reached().decode()
        calls: dict[str, list[int]] = {}
        for place, line in zip(_with_lines(said, self.path).split(), said.split(), strict=True):
            calls.setdefault(place, []).append(int(line.strip("@"), 16))
        return calls

    def leave_out(self, calls: Sequence[int]) -> None:
        """Leave these calls out of the next launches."""
        self.library.lm_emu_leave_out((ctypes.c_uint32 * len(calls))(*calls), ctypes.c_uint64(len(calls)))


class Worker:
    """A module in a separate process, restarted after a sanitizer has ended it."""

    def __init__(self, path: Path):
        self.path = path
        self.process: _Process | None = None

    def run(self, name: str, launch: Launch, args: Packed) -> None:
        arrays, relocations = _distinct_arrays(args)
        request = (
            bytes(launch)
            + struct.pack("4I", len(name.encode()), len(args.data), len(relocations), len(arrays))
            + name.encode()
            + args.data
            + b"".join(struct.pack("IIQ", *relocation) for relocation in relocations)
            + struct.pack(f"{len(arrays)}Q", *(array.nbytes for array in arrays))
            + b"".join(array.tobytes() for array in arrays)
        )
        process = self.process = self.process or _Process(self.path)
        try:
            process.put(request)
            status, length = struct.unpack("iI", process.get(8))
            message = process.get(length).decode()
            contents = [process.get(array.nbytes) for array in arrays]
        except (BrokenPipeError, EOFError):
            self.process = None
            raise EmulationError(f"{name}: {process.last_words()}") from None
        for array, data in zip(arrays, contents):
            _write_back(array, data, name)
        if status:
            raise EmulationError(f"{name}: {message}")


class _Process:
    """A running worker and its three pipes."""

    def __init__(self, path: Path):
        self.report = tempfile.TemporaryFile()  # noqa: SIM115
        signals = "handle_sigill=1:handle_sigtrap=1"  # the signal of UBSan depends on the processor
        options = {"ASAN_OPTIONS": f"detect_leaks=0:detect_stack_use_after_return=0:{signals}"}
        pipe = subprocess.PIPE
        self.child = subprocess.Popen([path], stdin=pipe, stdout=pipe, stderr=self.report, env=options)
        assert self.child.stdin is not None and self.child.stdout is not None
        self.requests, self.answers = self.child.stdin, self.child.stdout
        atexit.register(self.close)

    def put(self, data: bytes) -> None:
        self.requests.write(data)
        self.requests.flush()

    def get(self, count: int) -> bytes:
        data = self.answers.read(count)
        if len(data) < count:
            raise EOFError
        return data

    def last_words(self) -> str:
        """The report of the sanitizer; the process is gone afterwards."""
        status = self._end()
        self.report.seek(0)
        said, _, _ = self.report.read().decode(errors="replace").strip().partition("Shadow bytes")
        self.report.close()
        if re.search("AddressSanitizer: (ILL|TRAP)", said):
            return f"{UNDEFINED}\n{said}"
        return said or f"the worker ended with status {status}"

    def close(self) -> None:
        self._end()
        self.report.close()

    def _end(self) -> int:
        atexit.unregister(self.close)
        with contextlib.suppress(BrokenPipeError):
            self.requests.close()
        self.answers.close()
        return self.child.wait()


def _distinct_arrays(args: Packed) -> tuple[list[np.ndarray], list[tuple[int, int, int]]]:
    """The arrays to send, each once, and (position, array, offset) of every pointer."""
    arrays: list[np.ndarray] = []
    relocations = []
    for place, array in args.pointers:
        (value,) = struct.unpack_from("P", args.data, place)
        if not array.flags.c_contiguous:
            raise ValueError("a kernel's array must be contiguous; give at(base, offset) for a view")
        index = next((i for i, known in enumerate(arrays) if _same_memory(known, array)), len(arrays))
        if index == len(arrays):
            if any(np.may_share_memory(known, array) for known in arrays):
                raise ValueError("two of a kernel's arrays overlap; give at(base, offset) for both")
            arrays.append(array)
        relocations.append((place, index, value - array.ctypes.data))
    return arrays, relocations


def _same_memory(a: np.ndarray, b: np.ndarray) -> bool:
    return a.ctypes.data == b.ctypes.data and a.nbytes == b.nbytes


def _write_back(array: np.ndarray, data: bytes, name: str) -> None:
    if array.flags.writeable:
        array.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8)
    elif array.tobytes() != data:
        raise EmulationError(f"{name}: wrote to an array that is read-only")


def _with_lines(message: str, library: Path) -> str:
    """Replace @offset@ by file and line: of the innermost call outside of the primitives."""
    offsets = list(dict.fromkeys(OFFSET.findall(message)))
    if not offsets:
        return message
    asked = ["addr2line", "-a", "-i", "-e", str(library), *offsets]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    _, *of_each = re.split(r"^0x[0-9a-f]+$", said, flags=re.MULTILINE)  # -a prints each offset before its lines
    places = dict(zip(offsets, map(_outside_primitives, of_each), strict=True))
    return OFFSET.sub(lambda match: places[match[1]], message)


def _outside_primitives(said: str) -> str:
    lines = [line.split()[0] for line in said.strip().splitlines()]
    outside = [line for line in lines if not line.startswith("??") and not PRIMITIVES.search(line)]
    return (outside or lines)[0].rpartition("/")[2]
