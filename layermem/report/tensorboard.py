"""Event files for TensorBoard, from the records of a run: one folder for each net, so that their curves share a chart.

    DIR/train    loss, average_loss, learning_rate, outputs/NAME
    DIR/test0    outputs/NAME, and the loss if the solver computes it

The folder is locked while a run writes to it.  A resumed run hides the iterations in earlier event files of DIR that it
repeats.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from layermem.errors import InputError
from layermem.report.read_log import curves
from layermem.report.records import Record
from layermem.utils.locks import lock

INSTALL = "pip install 'layermem[tensorboard]'"
_count = itertools.count()  # distinguishes files that are made within one second


def check_tensorboard(folder: str) -> None:
    """Raise InputError, before any work, if no event files can be written to `folder`."""
    _writer_class(folder)
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise InputError("is a file; give a folder for the event files of TensorBoard", path=folder)


class EventFiles:
    """An object to be called with each record; `close` completes the files."""

    def __init__(self, folder: str):
        self.folder = folder
        self._new = _writer_class(folder)
        self._writers: dict[str, Any] = {}
        self._purge_step: int | None = None
        try:
            os.makedirs(folder, exist_ok=True)
            self._folder = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            what = f"cannot be made a folder: {error.strerror}; give another path for the event files"
            raise InputError(what, path=folder) from None
        if not lock(self._folder):
            os.close(self._folder)
            raise InputError("has the event files of a run that goes on; give another folder for this one", path=folder)

    def __call__(self, record: Record) -> None:
        if record["event"] == "start":
            iteration = record.get("iteration")
            if record.get("resumed_from") is not None and isinstance(iteration, int):
                self._purge_step = iteration
            self._writer("train").add_text("run", f"```\n{json.dumps(record, indent=1)}\n```")
        for curve in curves([record]):
            tag = f"outputs/{curve.name}" if curve.kind == "output" else curve.kind
            for iteration, value in zip(curve.iterations, curve.values):
                value = float("nan") if value is None else value
                self._writer(curve.net.replace(" ", "")).add_scalar(tag, value, iteration)

    def _writer(self, net: str) -> Any:
        if net not in self._writers:
            self._writers[net] = self._new(
                str(Path(self.folder, net)),
                purge_step=self._purge_step,
                filename_suffix=f".{os.getpid()}.{next(_count)}",
            )
        return self._writers[net]

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        os.close(self._folder)


def _writer_class(folder: str) -> Callable[..., Any]:
    try:
        from tensorboardX import SummaryWriter
    except ModuleNotFoundError:
        raise InputError(f"event files need the package tensorboardX; install it: {INSTALL}", path=folder) from None
    writer: Callable[..., Any] = SummaryWriter
    return writer
