"""Estimates the memory of the process: the bytes that a training run on this device is expected to hold in RAM.

    arena        only if the device computes in the host's memory
    host memory  offloaded buffers, unless they are in a spill file
    batches      for every net the waiting batches, the one being read and the one in use
    arrays       that the user gives in place of data
    staging      operands of the largest op of a Python layer, if the device has separate memory
    blob         a copy of the largest parameter while it is saved or loaded; fillers write into the arena
    runtime      Python, its libraries, the net and its plan as objects, and candidate steps in slices

The runtime's numbers were measured on CPython 3.11, x86-64, with NumPy 2: 59 MiB, and 9 KiB per instruction, over nets
of 31 to 21,737 instructions; 6.5 KiB per op of the steps that a search for slices has considered and rejected, over
searches of 243 to 5,566 such ops; h5py takes 12 MiB if a layer or a snapshot has HDF5 files, and MPICH 5.0 with mpi4py
18 MiB if there are several ranks.  Python takes 9 MiB to compile its imports if there are no bytecode files: in every
run with PYTHONDONTWRITEBYTECODE, as in many container images, and in the run that writes these files, which is not
counted. The memory of CUDA on the host is not counted either.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np

from layermem.backends.base import Device
from layermem.data.opening import held_bytes
from layermem.graph.net import Net
from layermem.graph.ops import PARAMETER, Graph
from layermem.layers.base import Layer
from layermem.layers.data import FEEDS
from layermem.layers.given_arrays import given_arrays
from layermem.ops import Python
from layermem.proto.schema import Message
from layermem.schedule.program import Program
from layermem.solver.snapshot import HDF5, saves
from layermem.utils.units import format_bytes

RUNTIME_BYTES = 59 * 2**20
INSTRUCTION_BYTES = 9 * 2**10
CANDIDATE_OP_BYTES = 13 * 2**9
HDF5_BYTES = 12 * 2**20
COMPILER_BYTES = 9 * 2**20
MPI_BYTES = 18 * 2**20


@dataclass(frozen=True)
class ProcessMemory:
    """Expected bytes in RAM, by purpose."""

    arena_bytes: int
    host_bytes: int
    batch_bytes: int
    blob_bytes: int
    runtime_bytes: int
    staging_bytes: int = 0
    array_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        parts = self.arena_bytes, self.host_bytes, self.batch_bytes, self.staging_bytes, self.blob_bytes
        return sum(parts) + self.array_bytes + self.runtime_bytes

    def __str__(self) -> str:
        """ "arena 2.50 GiB, batches 110 MiB, runtime 63.1 MiB": the parts that are not zero."""
        parts = [
            ("arena", self.arena_bytes),
            ("host memory", self.host_bytes),
            ("batches", self.batch_bytes),
            ("arrays", self.array_bytes),
            ("staging", self.staging_bytes),
            ("largest parameter", self.blob_bytes),
            ("runtime", self.runtime_bytes),
        ]
        return ", ".join(f"{name} {format_bytes(nbytes)}" for name, nbytes in parts if nbytes)


def uses_files(param: Message, *, loads: bool = False) -> bool:
    """Whether a run of the solver `param` saves snapshots or loads weights, which it names or `loads`."""
    return bool(loads or saves(param) or param.weights)


def uses_hdf5(param: Message) -> bool:
    """Whether a run of the solver `param` saves snapshots, or loads weights that it names, as HDF5."""
    saved = saves(param) and param.snapshot_format == HDF5
    return bool(saved or any(name.endswith(".h5") for names in param.weights for name in names.split(",")))


def expected_memory(
    nets: Sequence[Net],
    program: Program,
    device: Device,
    *,
    spill: bool = False,
    files: bool = True,
    hdf5: bool = False,
    ranks: int = 1,
    candidate_ops: int = 0,
) -> ProcessMemory:
    """The bytes that training `nets` by `program` is expected to hold in RAM.

    files   whether parameters are saved to files or loaded from files
    hdf5    whether such files are HDF5
    ranks   number of ranks; several load an MPI
    candidate_ops   number of ops of the steps in slices that a search has considered (Job.candidate_ops)
    """
    instructions = sum(len(schedule.instructions) for schedule in program.schedules)
    in_arena = [b for schedule in program.schedules for b in schedule.graph.buffers.values()]
    buffers = [b if b.band_of is None else b.band_of.whole for b in in_arena]
    return ProcessMemory(
        arena_bytes=program.arena_bytes if device.shares_host_memory else 0,
        host_bytes=0 if spill else program.host_bytes,
        batch_bytes=sum(_batch_bytes(net) for net in nets),
        array_bytes=_array_bytes(nets),
        staging_bytes=0 if device.shares_host_memory else _staging_bytes(program),
        blob_bytes=max((b.nbytes for b in buffers if b.kind == PARAMETER and files), default=0),
        runtime_bytes=RUNTIME_BYTES
        + INSTRUCTION_BYTES * instructions
        + CANDIDATE_OP_BYTES * candidate_ops
        + HDF5_BYTES * (hdf5 or any(node.layer.type.startswith("HDF5") for net in nets for node in net.nodes))
        + COMPILER_BYTES * compiles_imports()
        + MPI_BYTES * (ranks > 1),
    )


def beside_arena_bytes(nets: Sequence[Net], graphs: Sequence[Graph]) -> int:
    """About what a process that trains `nets` will take beside its arena and has not taken yet, before there is a
    plan."""
    ops = sum(len(graph.ops) for graph in graphs)
    batches = sum(map(_known_batch_bytes, nets))
    largest = max((b.nbytes for graph in graphs for b in graph.buffers.values() if b.kind == PARAMETER), default=0)
    whole = RUNTIME_BYTES + 2 * INSTRUCTION_BYTES * ops + batches + _array_bytes(nets) + largest
    return max(0, whole - max_resident_bytes())


def compiles_imports() -> bool:
    """Whether processes like this one compile their imports: NumPy is taken as the example."""
    return not Path(cache_from_source(np.__file__)).exists()


def _staging_bytes(program: Program) -> int:
    ops = [op for schedule in program.schedules for op in schedule.graph.ops]
    return max((op.record.staging_bytes(op.roles) for op in ops if isinstance(op.record, Python)), default=0)


def _array_bytes(nets: Sequence[Net]) -> int:
    return sum(array.nbytes for array in (nets[0].options.arrays or {}).values())


_batches: WeakKeyDictionary[Net, int] = WeakKeyDictionary()


def _known_batch_bytes(net: Net) -> int:
    """The bytes of _batch_bytes(), for which files are opened only once: a budget `free` is looked at every second."""
    if net not in _batches:
        _batches[net] = _batch_bytes(net)
    return _batches[net]


def _batch_bytes(net: Net) -> int:
    return sum(_layer_bytes(net, node.layer) for node in net.nodes if node.layer.type in FEEDS)


def _layer_bytes(net: Net, layer: Layer) -> int:
    """The bytes that an input layer holds: one batch where noise or given arrays replace its data."""
    is_noise = net.options.noise and layer.type != "DummyData"
    if is_noise or given_arrays(net.options.arrays, layer.param, net.phase):
        return 4 * sum(top.count for top in layer.tops)
    return held_bytes(layer.param, tuple(top.shape for top in layer.tops), str(net.path), net.file.files)


def max_resident_bytes() -> int:
    """The largest resident set size of this process so far; 0 if the system does not report it."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage also counts the parent's RAM at the start of this process
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    try:
        from resource import RUSAGE_SELF, getrusage
    except ImportError:  # Windows
        return 0
    return getrusage(RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
