"""Messages between GPUs over NCCL, from device memory to device memory, in the order of a CUDA stream.

    rank 0      id = ncclGetUniqueId      the transport carries it to the others
    all ranks   ncclCommInitRank          the start of a communicator
                ncclGroupStart, ncclSend and ncclRecv of all messages, ncclGroupEnd      an exchange, queued on a stream

NCCL only sends point to point here: layermem adds in the order of ranks, whereas NCCL chooses an order of its own.  The
library is loaded when the first communicator is made, so that planning does not need it.
source  NVIDIA NCCL, "NCCL API"; nccl.h
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from layermem.distributed.group import Group
from layermem.distributed.transport import Message, Transport
from layermem.errors import DeviceError

NAME = "libnccl.so.2"
REMEDY = "pip install nvidia-nccl-cu13, or --transport mpi"
ID_BYTES = 128
BYTE = 0  # ncclInt8
SUCCESS, IN_PROGRESS = 0, 7
LEAST_VERSION = 20700  # the first version with ncclSend and ncclRecv


class UniqueId(ctypes.Structure):
    """ncclUniqueId, which is passed by value."""

    _fields_ = [("internal", ctypes.c_byte * ID_BYTES)]


ARGUMENTS: dict[str, list[Any]] = {
    "ncclGetVersion": [ctypes.POINTER(ctypes.c_int)],
    "ncclGetUniqueId": [ctypes.POINTER(UniqueId)],
    "ncclCommInitRank": [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, UniqueId, ctypes.c_int],
    "ncclGroupStart": [],
    "ncclGroupEnd": [],
    "ncclSend": [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p],
    "ncclRecv": [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p],
    "ncclCommGetAsyncError": [ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)],
    "ncclCommAbort": [ctypes.c_void_p],
    "ncclCommDestroy": [ctypes.c_void_p],
}


class NcclLibrary:
    """The functions of libnccl.so.2; DeviceError if the library is missing, or if one of them fails."""

    def __init__(self, name: str = NAME):
        try:
            self._library = ctypes.CDLL(name)
            for function, arguments in ARGUMENTS.items():
                getattr(self._library, function).argtypes = arguments
            self._library.ncclGetErrorString.argtypes = [ctypes.c_int]
            self._library.ncclGetErrorString.restype = ctypes.c_char_p
        except (OSError, AttributeError) as error:
            raise DeviceError(f"NCCL does not load ({error}); {REMEDY}") from error
        version = ctypes.c_int()
        self("ncclGetVersion", ctypes.byref(version))
        self.version = version.value
        if self.version < LEAST_VERSION:
            raise DeviceError(f"NCCL {self.version} is too old to send from rank to rank; {REMEDY}")

    def __call__(self, function: str, *arguments: Any) -> None:
        status = getattr(self._library, function)(*arguments)
        if status != SUCCESS:
            raise DeviceError(f"{function} failed: {self.describe(status)}")

    def describe(self, status: int) -> str:
        """The text of an error, from NCCL."""
        return f"{(self._library.ncclGetErrorString(status) or b'?').decode()} ({status})"


class Nccl:
    """The communicator of one rank, on the GPU whose context is current.  `transport` connects the same ranks."""

    def __init__(self, transport: Transport):
        group = Group(transport)
        self.rank, self.size = transport.rank, transport.size
        self._library = group.agree(NcclLibrary)
        ids = group.gather_from(lambda: self._unique_id() if group.is_first else b"")
        self._communicator = ctypes.c_void_p()
        unique = UniqueId.from_buffer_copy(ids[0])
        group.agree(
            lambda: self._library("ncclCommInitRank", ctypes.byref(self._communicator), self.size, unique, self.rank)
        )

    def _unique_id(self) -> bytes:
        unique = UniqueId()
        self._library("ncclGetUniqueId", ctypes.byref(unique))
        return bytes(unique)

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message], stream: int) -> None:
        """Queue messages on the CUDA stream with this handle; spans at both ends have equal sizes in order."""
        self._library("ncclGroupStart")
        try:
            for function, messages in (("ncclSend", sends), ("ncclRecv", receives)):
                for rank, spans in messages:
                    for address, nbytes in spans:
                        self._library(function, address, nbytes, BYTE, rank, self._alive, stream)
        finally:
            self._library("ncclGroupEnd")

    def check(self) -> None:
        """Raise DeviceError if queued work has failed."""
        status = ctypes.c_int()
        self._library("ncclCommGetAsyncError", self._alive, ctypes.byref(status))
        if status.value not in (SUCCESS, IN_PROGRESS):
            raise DeviceError(f"NCCL failed: {self._library.describe(status.value)}")

    @property
    def _alive(self) -> ctypes.c_void_p:
        if not self._communicator:
            raise DeviceError("the NCCL communicator has ended")
        return self._communicator

    def abort(self) -> None:
        """Abort queued work, from any thread; the communicator is then gone."""
        self._end("ncclCommAbort")

    def close(self) -> None:
        self._end("ncclCommDestroy")

    def _end(self, function: str) -> None:
        communicator, self._communicator = self._communicator, ctypes.c_void_p()
        if communicator:
            self._library(function, communicator)
