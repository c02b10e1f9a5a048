"""The program extract_features: values of blobs, over batches of a net, as databases of float Datums.

Each item is a record with a key of 10 digits; its Datum has the item's shape, in which missing axes are 1.

source  Caffe tools/extract_features.cpp
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from layermem.cli.caffe_tools.databases import NOTED, backend
from layermem.cli.caffe_tools.devices import choose
from layermem.cli.caffe_tools.program import CaffeProgram, Call
from layermem.data.databases import new_database
from layermem.data.datum_source import Record
from layermem.errors import InputError
from layermem.interactive.net import Net
from layermem.proto.schema import Datum
from layermem.utils.environment import stated_options
from layermem.utils.numbers import is_count

AXES = 4  # of a blob with N, C, H and W
PLACE = "extract_features.cpp:176"


def _extract_features(call: Call) -> int:
    weights, model, blob_text, out_text, count_text, kind, *device = call.words
    blobs, outs = blob_text.split(","), out_text.split(",")
    if len(blobs) != len(outs):
        raise InputError(f"{len(blobs)} blobs and {len(outs)} databases are named; give a database for each blob")
    if not is_count(count_text):
        raise InputError(f"{count_text} is no number of batches; give 1 or more")
    is_gpu = device[:1] == ["GPU"]
    call.log.write(f"Using {'GPU' if is_gpu else 'CPU'}", "extract_features.cpp:62", "E")
    asked = (device[1:] or ["0"])[0] if is_gpu else ""
    choice = choose(call, asked, f"GPU {asked}")
    with ExitStack() as stack:
        net = stack.enter_context(_net(model, weights, blobs, choice.name, choice.index))
        databases = [stack.enter_context(new_database(Path(out), backend=backend(kind))) for out in outs]
        call.log.write("Extracting Features", PLACE, "E")
        numbers = [0] * len(blobs)
        for _ in range(int(count_text)):
            values = net.forward(blobs=blobs)
            for index, (blob, put) in enumerate(zip(blobs, databases)):
                for record in _records(blob, values[blob], numbers[index]):
                    put(record)
                    numbers[index] += 1
                    if numbers[index] % NOTED == 0:
                        _log_count(call, numbers[index], blob)
    for blob, number in zip(blobs, numbers):
        _log_count(call, number, blob)
    call.log.write("Successfully extracted the features!", PLACE, "E")
    return 0


def _log_count(call: Call, count: int, blob: str) -> None:
    call.log.write(f"Extracted features of {count} query images for feature blob {blob}", PLACE, "E")


def _net(model: str, weights: str, blobs: Sequence[str], device: str, index: int | None) -> Net:
    from layermem.backends.base import get_device

    return Net(
        model,
        "TEST",
        weights=weights.split(","),
        device=get_device(device) if index is None else get_device(device, index=index),
        keep=blobs,
        **stated_options(("allow_python", "budget", "strategy")),
    )


def _records(blob: str, values: np.ndarray, first: int) -> Iterator[Record]:
    """The records of a batch, whose items are numbered from `first` on."""
    if values.ndim > AXES:
        raise InputError(
            f"blob '{blob}' has {values.ndim} axes, and a Datum has an item of at most 3; give another blob"
        )
    shape = (*values.shape, *[1] * (AXES - values.ndim))
    for number, item in enumerate(values.reshape(shape), start=first):
        channels, height, width = item.shape
        data = item.ravel().astype(np.float32).tolist()
        yield b"%010d" % number, Datum(channels=channels, height=height, width=width, float_data=data)


PROGRAMS = {
    "extract_features": CaffeProgram(
        _extract_features,
        "WEIGHTS NET BLOB[,BLOB...] DB_NAME[,DB_NAME...] BATCHES DB_TYPE [CPU|GPU] [DEVICE_ID]",
        range(6, sys.maxsize),
        "extract_features.cpp:1",
        has_flags=False,
        on_terminal=False,
    )
}
