"""A device is a handful of verbs: how large a buffer is, allocate, bind rows to their bytes, order and run them.

Ops are bound once per schedule, since every address is known by then; a bound op is a callable without arguments.
What changes from step to step (seed, step, learning rate, batches) it finds in the context that it was bound to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from layermem.backends.arena import Arena
from layermem.backends.registry import StepContext
from layermem.errors import DeviceError, InputError
from layermem.graph.ops import Op
from layermem.ops import OpRecord, Tensor
from layermem.schedule.ir import Instruction

Bound = Callable[[], object]
Ahead = Callable[[], "Mapping[str, Sequence[np.ndarray]] | None"]  # arrays of the next batch by layer, if there is one


class Device:
    """Base of all devices.  What stands here is right for those that live in the host's memory and run row by row.

    An array is what `arena` gives for a place: NumPy views here, addresses on a device with memory of its own.
    """

    name = ""
    real = "float32"  # element type of blobs
    fusions: frozenset[str] = frozenset()  # names of the fused ops that it runs (OpRecord.fusion)

    @property
    def title(self) -> str:
        """What plans and costs are made for: its name, and what else changes the kernels that run."""
        return self.name

    def nbytes(self, tensor: Tensor) -> int:
        return tensor.count * np.dtype(self.dtype(tensor)).itemsize

    def dtype(self, tensor: Tensor) -> str:
        return self.real if tensor.dtype == "float32" else tensor.dtype

    def workspace_bytes(self, record: OpRecord, step: str, roles: Collection[str]) -> int:
        """Bytes that an op with these roles needs while it runs."""
        return 0

    def implements(self, record: OpRecord, step: str) -> bool:
        raise NotImplementedError

    def bind(self, op: Op, arrays: Mapping[str, Any], context: StepContext) -> Bound:
        """`arrays`: stored (channels-last) views by role, and "workspace" as bytes."""
        raise NotImplementedError

    def bind_copy(self, source: Any, target: Any) -> Bound:
        """A copy of bytes between the device's arena and the host's."""

        def copy() -> None:
            target[:] = source

        return copy

    def bind_fill(self, span: Any, byte: int, stream: str) -> Bound:
        """Set all bytes of `span`, after whatever the stream did before."""

        def fill() -> None:
            span[:] = byte

        return fill

    def in_streams(self, instructions: Sequence[Instruction], calls: Sequence[Bound]) -> Sequence[Bound]:
        """The bound rows, made to wait for those of other streams that they name in `after`.

        Here there is nothing to do: one row after the other is complete when the next begins.
        """
        return calls

    def run(self, calls: Sequence[Bound], ahead: Ahead | None = None) -> None:
        """Call all in order; on return all is done.

        ahead   fetches the batch that these calls will find in the context next time.  A device that works beside its
                host asks while it works; others leave it.
        """
        for call in calls:
            call()

    def free_bytes(self) -> int:
        """Bytes that an arena may take now: the budget `free`."""
        raise InputError(f"the budget 'free' asks the driver of a card; name the bytes of one for device {self.name}")

    def seconds(self, calls: Sequence[Bound]) -> float:
        """Run calls on their own; how long they took, without what it costs to start and to wait for them if the device
        can tell."""
        began = time.perf_counter()
        self.run(calls)
        return time.perf_counter() - began

    def describe(self) -> str:
        """What it is, for `layermem devices`."""
        return self.name

    def arena(self, nbytes: int, *, poison: bool = False) -> Arena:
        return Arena(nbytes, poison=poison)

    def host_arena(self, nbytes: int, *, spill: Path | None = None, poison: bool = False) -> Arena:
        """What offloaded buffers go to: memory of the host, or a file in the folder `spill`."""
        return Arena(nbytes, spill=spill, poison=poison)


def in_turn(calls: Sequence[Bound]) -> Bound:
    """One call for several."""
    if len(calls) == 1:
        return calls[0]

    def run() -> None:
        for call in calls:
            call()

    return run


NAMES = ("reference", "cpu", "cuda")
DEVICES: dict[str, Callable[..., Device]] = {}


def register_device(name: str) -> Callable[[type[Device]], type[Device]]:
    def register(cls: type[Device]) -> type[Device]:
        cls.name = name
        DEVICES[name] = cls
        return cls

    return register


def get_device(name: str, **settings: Any) -> Device:
    """The device called `name`, which lives in the module of that name; InputError lists those that exist.  `settings`
    are those of its class."""
    there = [each for each in NAMES if find_spec(f"layermem.backends.{each}")]
    if name not in DEVICES and name in there:
        import_module(f"layermem.backends.{name}")
    if name not in DEVICES:
        raise InputError(f"there is no device '{name}'; choose one of: {' '.join(there)}")
    return DEVICES[name](**settings)


def describe_devices() -> dict[str, str]:
    """What each device says of itself, or why it cannot be used here."""
    found = {}
    for name in NAMES:
        try:
            found[name] = get_device(name).describe()
        except DeviceError as error:
            found[name] = f"not here: {error}"
        except InputError:
            found[name] = "not in this version"
    return found
