"""CUDA graphs: work on streams, captured once and launched as a whole.

PyCUDA has no graphs, so these few driver functions are called by ctypes, on streams that PyCUDA made.  Addresses and
arguments do not change from step to step, so a graph is launched as it was captured (step_scalars.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any
from weakref import finalize

from layermem.errors import DeviceError

Handle = ctypes.c_void_p
THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE: calls of other threads are not checked


class DriverLibrary:
    """The driver's library, which PyCUDA has already loaded."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise DeviceError(f"graphs need the driver's library: {error}; run without --cuda-graph") from error

    def __call__(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver; DeviceError, with the driver's text, if it fails."""
        status = getattr(self._library, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(status, ctypes.byref(text))
            raise DeviceError(f"{name} failed: {(text.value or b'?').decode()} ({status}); run without --cuda-graph")


def _destroy(library: DriverLibrary, graph: Handle, launchable: Handle) -> None:
    """Free a graph and its nodes."""
    with suppress(DeviceError):  # they are gone already if the GPU failed
        for name, handle in (("cuGraphExecDestroy", launchable), ("cuGraphDestroy", graph)):
            if handle.value:
                library(name, handle)


class GraphCapture:
    """A capture of the work on `streams` while this context manager is active, then a graph to `launch`.

    origin  the stream that the others are forked from and joined to, and that launches are queued on
    event   makes an event
    before  host actions before each launch
    """

    def __init__(self, streams: Mapping[str, Any], origin: str, event: Callable[[], Any]):
        self.streams, self.origin, self.event = streams, streams[origin], event
        self.before: list[Callable[[], None]] = []
        self._library = DriverLibrary()
        self._graph, self._launchable = Handle(), Handle()
        self._events: list[Any] = []  # of the capture: they must exist until it ends
        self._release = finalize(self, _destroy, self._library, self._graph, self._launchable)
        self._release.atexit = False  # the driver frees what is left at exit

    # -- capture -----------------------------------------------------------------------------------------------

    def __enter__(self) -> GraphCapture:
        self._library("cuStreamBeginCapture_v2", self._origin, THREAD_LOCAL)
        start = self._record(self.origin)
        for stream in self._others:
            stream.wait_for_event(start)
        return self

    def __exit__(self, kind: Any, *error: Any) -> None:
        if kind is None:
            for stream in self._others:
                self.origin.wait_for_event(self._record(stream))
        try:
            self._library("cuStreamEndCapture", self._origin, ctypes.byref(self._graph))
        except DeviceError:
            if kind is None:
                raise
            return  # the error that broke the capture is more useful
        finally:
            self._events.clear()
        if kind is None:
            flags = ctypes.c_ulonglong(0)
            self._library("cuGraphInstantiateWithFlags", ctypes.byref(self._launchable), self._graph, flags)

    def _record(self, stream: Any) -> Any:
        self._events.append(self.event())
        return self._events[-1].record(stream)

    @property
    def _origin(self) -> Handle:
        return Handle(self.origin.handle)

    @cached_property
    def _others(self) -> list[Any]:
        return [stream for stream in self.streams.values() if stream is not self.origin]

    # -- use ---------------------------------------------------------------------------------------------------

    def launch(self) -> None:
        for action in self.before:
            action()
        self._library("cuGraphLaunch", self._launchable, self._origin)
