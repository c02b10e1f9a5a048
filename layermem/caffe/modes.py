"""Settings for the whole process: pycaffe's device and seed, and layermem's options such as a budget.

They apply to nets and solvers that are made afterwards.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

from layermem.backends.base import Device, get_device
from layermem.errors import DeviceError, InputError
from layermem.utils.arguments import checked
from layermem.utils.environment import stated_options
from layermem.utils.similar import did_you_mean

PACKAGE = str(Path(__file__).parents[1])
CPU, GPU = "cpu", "cuda"
OPTIONS = ("allow_python", "budget", "device", "host_budget", "strategy")

_mode = CPU
_number = 0
_seed: int | None = None
_options: dict[str, Any] = {}
_noted: set[str] = set()


def set_mode_cpu() -> None:
    """Let nets and solvers that are made from now on run on the device `cpu`."""
    global _mode
    _mode = CPU


def set_mode_gpu() -> None:
    """Let nets and solvers that are made from now on run on `cuda`.

    On a machine without a usable GPU they run on `cpu`, with one warning.
    """
    global _mode
    _mode = GPU


@checked
def set_device(device_id: int) -> None:
    """Set the number of the GPU.  layermem uses the first visible one; another number causes one warning."""
    global _number
    _number = int(device_id)


@checked
def set_random_seed(seed: int) -> None:
    """Set the seed of nets that are made from now on, and of solvers without a random_seed."""
    global _seed
    _seed = int(seed)


def configure(**options: Any) -> None:
    """Set options of layermem for nets and solvers that are made from now on; None removes one.

    budget, host_budget, strategy   see layermem.Net and layermem.Solver
    device         a name or a Device; replaces set_mode_cpu and set_mode_gpu
    allow_python   import and run the classes of Python layers
    """
    for name, value in options.items():
        if name not in OPTIONS:
            raise InputError(f"no option '{name}'; {did_you_mean(name, OPTIONS) or f'use {chr(32).join(OPTIONS)}'}")
        if value is None:
            _options.pop(name, None)
        else:
            _options[name] = value


def configure_from_environment() -> None:
    """Set the options but `device` that variables LAYERMEM_NAME of the environment state, such as LAYERMEM_BUDGET."""
    configure(**stated_options(name for name in OPTIONS if name != "device"))


def options() -> dict[str, Any]:
    """The options of a net or solver that is made now, with its device but without the seed."""
    return {"device": _device(), **_options}


def seed() -> int | None:
    return _seed


def _device() -> str | Device:
    if _mode == GPU and "device" not in _options:
        try:
            device = get_device(GPU)
            device.describe()  # raises an error without a usable GPU
        except (DeviceError, InputError) as error:
            _note(f"set_mode_gpu: no GPU can be used here ({error}); nets run on the device cpu")
            return CPU
        if _number:
            _note(
                f"set_device({_number}): layermem uses the first GPU that it sees; set CUDA_VISIBLE_DEVICES={_number} "
                "to use another one"
            )
        return device
    return CPU


def _note(text: str) -> None:
    """Issue a warning once per process."""
    if text not in _noted:
        _noted.add(text)
        path, line = _caller()
        warnings.warn_explicit(text, UserWarning, path, line)


def _caller() -> tuple[str, int]:
    """File and line in the user's code."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
