"""Event files for TensorBoard, from the records of a run: one folder for each net, so that their curves share a chart.

    DIR/train    loss, average_loss, learning_rate, outputs/NAME
    DIR/test0    outputs/NAME, and the loss if the solver computes it

The folder is locked while a run writes to it.  A resumed run hides the iterations in earlier event files of DIR that it
repeats.  Each event is written at once, and on a full disk the run stops, as it does for a log.
source  tensorboardX record_writer.py, writer.py; tensorflow.org/tutorials/load_data/tfrecord
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import struct
import time
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from layermem.errors import InputError
from layermem.report.read_log import curves
from layermem.report.records import Record
from layermem.report.run_log import append, named
from layermem.utils.files import blocked_at
from layermem.utils.locks import locked

INSTALL = "pip install 'layermem[tensorboard]'"
_count = itertools.count()  # distinguishes files that are made within one second


def check_tensorboard(folder: str) -> None:
    """Raise InputError, before any work, if no event files can be written to `folder`."""
    if find_spec("tensorboardX") is None:
        raise InputError(f"event files need the package tensorboardX; install it: {INSTALL}", path=folder)
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise InputError("is a file; give a folder for the event files of TensorBoard", path=folder)
    if blocked := blocked_at(folder):
        what = f"cannot be made a folder: '{blocked}' is not a writable folder; give another path for the event files"
        raise InputError(what, path=folder)


class EventFiles:
    """An object to be called with each record; `close` closes the files."""

    def __init__(self, folder: str):
        check_tensorboard(folder)
        self.folder = folder
        self._files: dict[str, EventFile] = {}
        self._purge_step: int | None = None
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            what = f"cannot be made a folder: {error.strerror}; give another path for the event files"
            raise InputError(what, path=folder) from None
        self._stack = ExitStack()
        if not self._stack.enter_context(locked(Path(folder, ".lock"))):
            self._stack.close()
            raise InputError("has the event files of a run that goes on; give another folder for this one", path=folder)

    def __call__(self, record: Record) -> None:
        from tensorboardX.summary import scalar, text

        if record["event"] == "start":
            iteration = record.get("iteration")
            if record.get("resumed_from") is not None and isinstance(iteration, int):
                self._purge_step = iteration
            self._file("train").write(summary=text("run", f"```\n{json.dumps(record, indent=1)}\n```"))
        for curve in curves([record]):
            tag = f"outputs/{curve.name}" if curve.kind == "output" else curve.kind
            for iteration, value in zip(curve.iterations, curve.values):
                value = float("nan") if value is None else value
                self._file(curve.net.replace(" ", "")).write(step=iteration, summary=scalar(tag, value))

    def _file(self, net: str) -> EventFile:
        if net not in self._files:
            self._files[net] = EventFile(os.path.join(self.folder, net), self._purge_step)
            self._stack.callback(self._files[net].close)
        return self._files[net]

    def close(self) -> None:
        self._stack.close()


class EventFile:
    """A new event file in `folder`; one with a `purge_step` hides the events of earlier ones from there on."""

    def __init__(self, folder: str, purge_step: int | None):
        from tensorboardX.proto.event_pb2 import SessionLog

        name = f"events.out.tfevents.{time.time_ns() // 10**9}.{socket.gethostname()}.{os.getpid()}.{next(_count)}"
        self.path = os.path.join(folder, name)
        with named(self.path):
            os.makedirs(folder, exist_ok=True)
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self.write(file_version="brain.Event:2")
        if purge_step is not None:
            self.write(step=purge_step, session_log=SessionLog(status=SessionLog.START))

    def write(self, **fields: Any) -> None:
        """Append an event, between its length and the checks of both."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.record_writer import masked_crc32c

        data: bytes = Event(wall_time=time.time_ns() / 1e9, **fields).SerializeToString()
        length = struct.pack("<Q", len(data))
        checks = [struct.pack("<I", masked_crc32c(each)) for each in (length, data)]
        append(self.path, self._file, length + checks[0] + data + checks[1])

    def close(self) -> None:
        os.close(self._file)
