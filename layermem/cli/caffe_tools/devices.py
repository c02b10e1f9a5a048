"""Chooses the device that -gpu, or solver_mode and device_id of a solver, ask for; each choice is a line of the log.

Without a GPU the CPU computes what was asked of the GPUs, with a warning, so that scripts run unchanged.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from layermem.cli.caffe_tools.program import Call
from layermem.errors import CudaUnavailable, InputError
from layermem.utils.numbers import is_count

if TYPE_CHECKING:
    from layermem.backends.cuda.driver.context import Gpu
    from layermem.proto.read import SolverFile

ALL = "all"  # value of -gpu
VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class DeviceChoice:
    """The device `name`; on cuda the number of the GPU; and how many GPUs train together, or would."""

    name: str
    index: int | None = None
    count: int = 1


def asked_of(solver: SolverFile, gpu: str) -> tuple[str, str]:
    """Return the GPUs of -gpu, or else those of the solver, and the words in which they were asked for."""
    if gpu:
        return gpu, f"-gpu {gpu}"
    message = solver.message
    is_gpu = message.HasField("solver_mode") and message.solver_mode == message.GPU
    if not is_gpu:
        return "", ""
    number = str(message.device_id) if message.HasField("device_id") else "0"
    return number, "solver_mode: GPU" + (f" with device_id: {number}" if message.HasField("device_id") else "")


def choose(call: Call, asked: str, source: str, *, several: bool = False) -> DeviceChoice:
    """Return the device for `asked`, a value of -gpu; only `several` uses more than the first of its GPUs."""
    if not asked:
        call.log.write("Use CPU.", "caffe.cpp:197")
        return DeviceChoice("cpu")
    numbers = _numbers(asked)
    try:
        gpus = found_gpus()
    except CudaUnavailable as error:
        count = max(1, len(numbers)) if several else 1
        batches = f", with {count} batches an iteration as {count} GPUs would" if count > 1 else ""
        text = f"No GPU was found for {source}, so the CPU computes{batches}: {error}"
        call.log.write(text, "caffe.cpp:197", "W")
        return DeviceChoice("cpu", count=count)
    if call.group.transport is not None:  # one of several ranks, each of which sees the GPUs that were chosen
        return DeviceChoice("cuda", count=call.group.size)
    chosen = [_gpu(number, gpus, source) for number in numbers] or gpus
    if several and len(chosen) > 1:
        call.log.write(f"Using GPUs {', '.join(str(gpu.number) for gpu in chosen)}", "caffe.cpp:204")
        _show_only([gpu.number for gpu in chosen])
    else:
        del chosen[1:]
        call.log.write(f"Using GPUs {chosen[0].number}", "caffe.cpp:204")
    for gpu in chosen:
        call.log.write(f"GPU {gpu.number}: {gpu.name}", "caffe.cpp:209")
    return DeviceChoice("cuda", chosen[0].number, len(chosen))


def found_gpus() -> list[Gpu]:
    """Return the GPUs of this machine; CudaUnavailable if there are none."""
    from layermem.backends.cuda.driver.context import gpus

    return gpus()


def selected(asked: str) -> list[Gpu]:
    """Return the GPUs of a value of -gpu; CudaUnavailable or InputError if they are not there."""
    numbers, gpus = _numbers(asked), found_gpus()
    return [_gpu(number, gpus, f"-gpu {asked}") for number in numbers] or gpus


def _numbers(asked: str) -> list[int]:
    """Return the numbers in a value of -gpu; none for `all`."""
    if asked == ALL:
        return []
    words = asked.split(",")
    if not all(map(is_count, words)):
        raise InputError(f"-gpu {asked} is no list of GPUs; write numbers such as 0,1, or all")
    return [int(word) for word in words]


def _gpu(number: int, gpus: list[Gpu], source: str) -> Gpu:
    if number >= len(gpus):
        raise InputError(f"{source} names GPU {number}, and this machine has {len(gpus)}, from 0 on; choose one")
    return gpus[number]


def _show_only(numbers: list[int]) -> None:
    """Let processes that are started from now on see these GPUs alone, in this order."""
    visible = os.environ.get(VISIBLE)
    names = visible.split(",") if visible else None
    os.environ[VISIBLE] = ",".join(str(number) if names is None else names[number] for number in numbers)
