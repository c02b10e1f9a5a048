"""CUDA graphs: work on streams, captured once and launched as a whole.

PyCUDA has no graphs, so these few calls of the driver go by ctypes, on streams that PyCUDA made.  Addresses never
change from step to step; the arguments that do are written into their kernels' nodes before each launch.
source  CUDA Driver API, "Graph Management" and "Stream Management"
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from layermem.errors import DeviceError

Handle = ctypes.c_void_p
THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE: what other threads call is their own


class NodeParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = [
        ("function", Handle), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("parameters", ctypes.POINTER(Handle)), ("extra", ctypes.POINTER(Handle)), ("kernel", Handle),
        ("context", Handle),
    ]  # fmt: skip


class Library:
    """The driver's library, which PyCUDA has loaded already."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise DeviceError(f"graphs need the driver's library: {error}; run without --cuda-graph") from error

    def __call__(self, name: str, *arguments: Any) -> None:
        """DeviceError with the driver's words where it refuses."""
        status = getattr(self._library, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(status, ctypes.byref(text))
            raise DeviceError(f"{name} failed: {(text.value or b'?').decode()} ({status}); run without --cuda-graph")


class GraphCapture:
    """A capture of what is put on `streams` while this is entered, then a graph to `launch`.

    origin  the stream that the others are forked from, and joined to; launches go there
    event   makes one
    before  what the host does before each launch
    """

    def __init__(self, streams: Mapping[str, Any], origin: str, event: Callable[[], Any]):
        self.streams, self.origin, self.event = streams, streams[origin], event
        self.before: list[Callable[[], None]] = []
        self._library = Library()
        self._graph, self._launchable = Handle(), Handle()

    # -- capture -----------------------------------------------------------------------------------------------

    def __enter__(self) -> GraphCapture:
        self._library("cuStreamBeginCapture_v2", self._origin, THREAD_LOCAL)
        start = self.event().record(self.origin)
        for stream in self._others:
            stream.wait_for_event(start)
        return self

    def __exit__(self, kind: Any, *error: Any) -> None:
        if kind is None:
            for stream in self._others:
                self.origin.wait_for_event(self.event().record(stream))
        try:
            self._library("cuStreamEndCapture", self._origin, ctypes.byref(self._graph))
        except DeviceError:
            if kind is None:
                raise
            return  # what broke the capture is the better story
        if kind is None:
            flags = ctypes.c_ulonglong(0)
            self._library("cuGraphInstantiateWithFlags", ctypes.byref(self._launchable), self._graph, flags)

    @property
    def _origin(self) -> Handle:
        return Handle(self.origin.handle)

    @cached_property
    def _others(self) -> list[Any]:
        return [stream for stream in self.streams.values() if stream is not self.origin]

    def update_arguments(self, stream: str, args: bytearray, write: Callable[[], None]) -> None:
        """The kernel just put on `stream` takes `args` as `write` leaves them before each launch."""
        node, params = self._last(stream), NodeParams()
        self._library("cuGraphKernelNodeGetParams_v2", node, ctypes.byref(params))
        packed = (ctypes.c_char * len(args)).from_buffer(args)
        params.parameters = (Handle * 1)(ctypes.addressof(packed))
        params.extra = None

        def rewrite() -> None:
            write()
            self._library("cuGraphExecKernelNodeSetParams_v2", self._launchable, node, ctypes.byref(params))

        self.before.append(rewrite)

    def _last(self, stream: str) -> Handle:
        """The node that the stream's next one would come after."""
        status, count = ctypes.c_int(), ctypes.c_size_t()
        nodes = ctypes.POINTER(Handle)()
        self._library(
            "cuStreamGetCaptureInfo_v2", Handle(self.streams[stream].handle), ctypes.byref(status), None, None,
            ctypes.byref(nodes), ctypes.byref(count),
        )  # fmt: skip
        if count.value != 1:
            raise DeviceError(f"a kernel of the step has {count.value} nodes in its graph; run without --cuda-graph")
        return Handle(nodes[0])

    # -- use ---------------------------------------------------------------------------------------------------

    def launch(self) -> None:
        for action in self.before:
            action()
        self._library("cuGraphLaunch", self._launchable, self._origin)
