"""The transport of a job that a launcher of MPI starts: mpiexec, mpirun, srun.

mpi4py is imported only if a launcher's variables are set, because the import loads the machine's MPI, which ends the
process if it does not fit its launcher.  Messages go from address to address: one of several spans has its own
datatype. A wait polls, so that another thread can cancel it, and sleeps if nothing arrives for a while, so that waiting
ranks leave their cores to the kernels.

A process that ends without close() has not finalized MPI: the launcher ends the other ranks.
"""

from __future__ import annotations

import array
import fcntl
import os
import stat
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from layermem.distributed.transport import Exchange, Message
from layermem.errors import DeviceError, InputError
from layermem.utils.early_signals import while_waiting

MPI: Any = None  # the module mpi4py.MPI, set by connect()

VARIABLES = ("PMI_RANK", "PMI_SIZE", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE")  # set by mpiexec, mpirun, srun --mpi=pmix, ..
SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
REMEDY = "pip install 'layermem[mpi]' mpich, in the environment of layermem"

TAGS = 32768  # every MPI has this many
YIELD_SECONDS = 2e-3  # a wait first yields the core for this long: usual latency
SLEEP_SECONDS = 2e-4  # between polls after that, while other ranks compute
READ_SECONDS = 2.0  # for the launcher to read a rank's output before an abort
FORWARD_SECONDS = 0.05  # for the launcher to forward the output


def wait_until_read(streams: Sequence[int], seconds: float = READ_SECONDS) -> None:
    """Give the launcher time to forward the bytes in these pipes: on an abort it drops unread ones.

    Return at once if none of the file descriptors `streams` is a pipe, and after `seconds` even with unread bytes.
    """
    pipes = [stream for stream in streams if _is_pipe(stream)]
    end = time.monotonic() + seconds
    while any(_unread(pipe) for pipe in pipes) and time.monotonic() < end:
        time.sleep(SLEEP_SECONDS)
    if pipes:
        time.sleep(FORWARD_SECONDS)


def _is_pipe(stream: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(stream).st_mode)
    except OSError:  # closed
        return False


def _unread(pipe: int) -> int:
    """Number of unread bytes in a pipe."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def launched(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a launcher of MPI has started this process."""
    plugin = environ.get("SLURM_MPI_TYPE", "none")  # set by `srun --mpi`
    return any(name in environ for name in VARIABLES) or ("SLURM_PROCID" in environ and plugin not in ("", "none"))


def connect(environ: Mapping[str, str] = os.environ) -> MpiTransport:
    """Return the transport of this rank; InputError if the launcher and the MPI of mpi4py do not fit together."""
    global MPI
    if MPI is None:
        MPI = load(environ)
    initialized_here = not MPI.Is_initialized()
    if initialized_here:
        with reporting_mpi_errors(), while_waiting():
            MPI.Init_thread(MPI.THREAD_MULTIPLE)
    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        raise InputError(f"{library()} has no threads; install another MPI: {REMEDY}")
    expected = next((int(environ[name]) for name in SIZES if name in environ), None)
    size = MPI.COMM_WORLD.Get_size()
    if expected not in (None, size):
        raise InputError(
            f"the launcher starts {expected} ranks, but {library()} counts {size}: use the mpiexec of that MPI"
        )
    return MpiTransport(MPI.COMM_WORLD, finalize=initialized_here)


def load(environ: Mapping[str, str]) -> Any:
    """Import the module mpi4py.MPI without starting MPI."""
    if find_spec("mpi4py") is None:
        raise InputError(f"a launcher of MPI has started this process, which needs mpi4py: {REMEDY}")
    import mpi4py

    mpi4py.rc.initialize = mpi4py.rc.finalize = False
    try:
        from mpi4py import MPI as module
    except (ImportError, RuntimeError) as error:  # RuntimeError without libmpi
        raise InputError(f"mpi4py finds no MPI ({' '.join(str(error).split())}): {REMEDY}") from error
    check_launcher(environ, module.Get_library_version(), loaded_library())
    return module


def check_launcher(environ: Mapping[str, str], version: str, path: Path | None) -> None:
    """Raise InputError if the MPI at `path` does not belong to this launcher: its start would end the process, or
    isolate each rank."""
    name = f"{version.splitlines()[0].split(',')[0].strip()}{f' in {path.parent}' if path is not None else ''}"
    if "OMPI_COMM_WORLD_SIZE" in environ and not ("Open MPI" in version or "Spectrum" in version):
        raise InputError(f"Open MPI starts this process, but mpi4py has loaded {name}: use the mpiexec of that MPI")
    prefix = environ.get("OPAL_PREFIX")
    if prefix and path is not None and "Open MPI" in version and not path.is_relative_to(Path(prefix).resolve()):
        raise InputError(
            f"the Open MPI of {prefix} starts this process, but mpi4py has loaded {name}: use the mpiexec of that one"
        )


def loaded_library() -> Path | None:
    """The file of libmpi in this process; None if the system does not list it."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return next((Path(line.split(maxsplit=5)[-1]).resolve() for line in lines if "/libmpi." in line), None)


def library() -> str:
    return str(MPI.Get_library_version()).splitlines()[0].split(",")[0]


@contextmanager
def reporting_mpi_errors() -> Iterator[None]:
    """Turn errors of MPI into DeviceError."""
    try:
        yield
    except MPI.Exception as error:
        raise DeviceError(f"MPI: {' '.join(error.Get_error_string().split())}") from error


class MpiTransport:
    """A Transport with one communicator for exchanges and one for everything else."""

    def __init__(self, world: Any, *, finalize: bool = False):
        self.rank, self.size = world.Get_rank(), world.Get_size()
        self._world, self._finalize = world, finalize
        with reporting_mpi_errors():
            self._messages, self._control = world.Dup(), world.Dup()
            for comm in (self._messages, self._control):
                comm.Set_errhandler(MPI.ERRORS_RETURN)
        self._exchanges = 0
        self._cancelled = False

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message]) -> Exchange:
        self.check()
        tag, self._exchanges = self._exchanges % TAGS, self._exchanges + 1
        with reporting_mpi_errors():
            under_way = MpiExchange(self.check)
            for other, spans in receives:
                under_way.start(self._messages.Irecv, spans, other, tag, received=True)
            for other, spans in sends:
                under_way.start(self._messages.Isend, spans, other, tag)
            return under_way

    def allgather(self, value: object) -> list[object]:
        with reporting_mpi_errors():
            return list(self._control.allgather(value))

    def check(self) -> None:
        if self._cancelled:
            raise DeviceError("the exchange is cancelled")

    def cancel(self) -> None:
        self._cancelled = True

    def abort(self, code: int) -> NoReturn:
        sys.stdout.flush()
        sys.stderr.flush()
        wait_until_read((1, 2))
        self._world.Abort(code)
        os._exit(code)

    def close(self) -> None:
        """End communication; all ranks have to call it, and none may communicate afterwards."""
        with reporting_mpi_errors():
            for comm in (self._messages, self._control):
                comm.Free()
            if self._finalize:
                MPI.Finalize()


class MpiExchange:
    """Requests under way with their datatypes, which are freed together."""

    def __init__(self, check: Callable[[], None]):
        self._check = check
        self._requests: list[Any] = []
        self._types: list[Any] = []
        self._expected: list[tuple[int, int]] = []  # index and bytes of each received message

    def start(self, operation: Callable[..., Any], spans: Any, other: int, tag: int, *, received: bool = False) -> None:
        if len(spans) == 1:
            buffer = [MPI.buffer.fromaddress(*spans[0]), MPI.BYTE]
        else:
            datatype = MPI.BYTE.Create_hindexed([nbytes for _, nbytes in spans], [at for at, _ in spans]).Commit()
            self._types.append(datatype)
            buffer = [MPI.BOTTOM, 1, datatype]
        if received:
            self._expected.append((len(self._requests), sum(nbytes for _, nbytes in spans)))
        self._requests.append(operation(buffer, other, tag))

    def wait(self) -> None:
        statuses = [MPI.Status() for _ in self._requests]
        try:
            with reporting_mpi_errors():
                self._poll(statuses)
            for index, nbytes in self._expected:
                found = statuses[index].Get_count(MPI.BYTE)
                if found != nbytes:
                    raise DeviceError(f"rank {statuses[index].Get_source()} sends {found} bytes instead of {nbytes}")
        finally:
            self._free()

    def _poll(self, statuses: list[Any]) -> None:
        yield_until = time.monotonic() + YIELD_SECONDS
        try:
            while not MPI.Request.Testall(self._requests, statuses):
                self._check()
                if time.monotonic() < yield_until:
                    os.sched_yield()
                else:
                    time.sleep(SLEEP_SECONDS)
        except BaseException:
            for index, _ in self._expected:
                if self._requests[index]:
                    self._requests[index].Cancel()  # MPI must not write to freed memory
            raise

    def _free(self) -> None:
        for datatype in self._types:
            datatype.Free()
        self._requests, self._types, self._expected = [], [], []
