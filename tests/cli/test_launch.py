"""Processes as ranks: one result, one report, one exit code, and no rank that waits forever."""

from __future__ import annotations

import argparse
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

import pytest
from PIL import Image

from layermem.cli import launch
from layermem.distributed.group import Group
from layermem.distributed.loopback import run_ranks
from layermem.errors import InputError
from tests.nets import DATA, LOSS, conv, norm, relu, solver_text

pytest.importorskip("mpi4py")
ROOT = Path(__file__).parents[2]
NET = f'name: "tiny" {DATA} {conv("conv1", "data", 4, 3)} {norm("conv1")} {relu("conv1")} {LOSS % "conv1"}'
SECONDS = 60  # in which every job here ends

needs_mpi = pytest.mark.skipif(
    not (Path(sys.prefix) / "bin" / "mpiexec").exists() and not shutil.which("mpiexec"), reason="no mpiexec"
)


@pytest.fixture
def solver(tmp_path):
    (tmp_path / "net.prototxt").write_text(NET)
    fields = {"display": 1, "snapshot_after_train": True, "snapshot_prefix": "run", "random_seed": 3, "iter_size": 4}
    (tmp_path / "solver.prototxt").write_text('net: "net.prototxt"\n' + solver_text(**fields))
    return tmp_path


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "layermem", "train", "--solver", "solver.prototxt", *words]


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    return subprocess.Popen(
        words,
        cwd=folder,
        env=environ,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def run(folder: Path, *words: str) -> tuple[int, str, str]:
    process = start(folder, *words)
    try:
        out, error = process.communicate(timeout=SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, out, error


def ranks(*parts: list[str]) -> list[str]:
    """An mpiexec of one process for each part."""
    words = [launch.launcher()]
    for index, part in enumerate(parts):
        words += [*([":"] if index else []), "-n", "1", *part]
    return words


@pytest.mark.whole
@needs_mpi
def test_ranks_write_the_files_of_one_process_and_one_of_them_reports(solver):
    hashes = []
    for options in ([], ["--ranks", "2"]):
        code, out, error = run(solver, *command("--iterations", "3", *options))
        assert (code, error) == (0, "")
        assert out.count("Optimization Done") == 1 and out.count("Iteration 1 ") == 1
        files = [solver / f"run_iter_3.{end}" for end in ("caffemodel", "solverstate")]
        hashes.append([sha256(file.read_bytes()).hexdigest() for file in files])
    assert hashes[0] == hashes[1]
    assert "rank 0 of 2, 4 micro-batches" in out
    predicted = re.findall(r"peak of rank \d +predicted ([\d,]+) bytes, measured ([\d,]+) bytes", out)
    assert len(predicted) == 2 and all(first == second for first, second in predicted)


@needs_mpi
@pytest.mark.samples(8)
@pytest.mark.parametrize(
    "options, code, text",
    [
        (["--iter-size", "3"], 2, "iter_size 3 cannot be shared by 2 ranks"),
        (["--batch", "0"], 2, "batch"),
        (["--budget", "1KiB"], 3, "is below the minimum"),
        (["--weights", "none.caffemodel"], 2, "none.caffemodel"),
        (["--log", "absent/run.jsonl"], 2, "absent"),
    ],
)
def test_an_error_before_the_first_step_is_reported_once_and_ends_all_ranks(options, code, text, solver):
    both = options[0] in ("--iter-size", "--log")  # found by comparing, or by the rank that writes
    other = command(*(options if both else []))
    found, out, error = run(solver, *ranks(command(*options) if both else other, command(*options)))
    assert found == code
    assert error.count("layermem: ") == 1 and text in error and "BAD TERMINATION" not in error
    assert "Iteration" not in out


@pytest.mark.whole
@needs_mpi
def test_time_measures_the_network_between_ranks(solver):
    words = [sys.executable, "-m", "layermem", "time", "--net", "net.prototxt", "--iterations", "1"]
    code, out, error = run(solver, launch.launcher(), "-n", "2", *words, "--out", "costs.csv")
    assert (code, error) == (0, "") and out.count("network: ") == 1 and out.count("link: ") == 1
    costs = dict(line.split(",") for line in (solver / "costs.csv").read_text().splitlines() if "," in line)
    assert float(costs["link.net"]) > 0 and 0 < float(costs["net.latency"]) < 1
    code, out, error = run(solver, *words[:3], "plan", "--net", "net.prototxt", "--ranks", "2", "--costs", "costs.csv")
    assert (code, error) == (0, "") and "predicted from measured ops" in out


@needs_mpi
def test_an_error_of_one_rank_after_the_first_step_is_reported_once_and_ends_all(tmp_path):
    """Simulates two machines with separate files: an image is damaged on one of them."""
    source = """
        layer { name: "data" type: "ImageData" top: "data" top: "label"
                image_data_param { source: "list.txt" batch_size: 1 } }
    """
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        net = NET.replace(DATA, source)
        (folder / "net.prototxt").write_text(net)
        fields = {"snapshot_prefix": "run", "random_seed": 3, "iter_size": 2, "test_interval": 1000}
        (folder / "solver.prototxt").write_text('net: "net.prototxt"\n' + solver_text(**fields))
        for index in range(8):
            Image.new("RGB", (6, 6), (index, 9, 9)).save(folder / f"{index}.png")
        (folder / "list.txt").write_text("".join(f"{index}.png {index % 5}\n" for index in range(8)))
    (tmp_path / "b" / "5.png").write_text("no image")
    words = [launch.launcher()]
    for folder in "ab":
        separator = [":"] if folder == "b" else []
        words += [*separator, "-n", "1", "-wdir", str(tmp_path / folder), *command("--iterations", "50")]
    code, _, error = run(tmp_path, *words)
    assert code == 2 and error.count("layermem: ") == 1 and "5.png" in error


@pytest.mark.whole
@needs_mpi
def test_a_killed_rank_ends_the_job_and_a_restart_goes_on(solver):
    whole = run(solver, *command("--iterations", "40", "-q"))
    expected = (solver / "run_iter_40.caffemodel").read_bytes()
    for file in solver.glob("run_iter_*"):
        file.unlink()
    assert whole[0] == 0
    file = solver / "solver.prototxt"
    file.write_text(f"{file.read_text()}snapshot: 10\n")
    process = start(solver, *ranks(command("--iterations", "100000"), command("--iterations", "100000")))
    try:
        wait_for(lambda: any(solver.glob("run_iter_20.solverstate")))
        os.kill(ranks_in(solver)[-1], signal.SIGKILL)
        began = time.monotonic()
        process.communicate(timeout=SECONDS)
        assert process.returncode != 0 and time.monotonic() - began < 30
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    for file in solver.glob("run_iter_*"):
        if int(file.name.split("_")[2].partition(".")[0]) > 20:
            file.unlink()
    code, out, _ = run(solver, *command("--iterations", "40", "--restart", "--ranks", "4"))
    assert code == 0 and "run_iter_20.solverstate" in out
    assert (solver / "run_iter_40.caffemodel").read_bytes() == expected


@needs_mpi
def test_signals_to_the_first_process_are_obeyed_by_all_ranks(solver):
    """A SIGHUP saves a snapshot, a SIGINT another one, and ends the run."""
    process = start(solver, *command("--iterations", "100000", "--ranks", "2"))
    try:
        seen = ""
        for awaited, number in (("Iteration 3 ", signal.SIGHUP), ("solver state", signal.SIGINT)):
            while awaited not in seen:
                line = process.stdout.readline()
                assert line, process.stderr.read()
                seen += line
            process.send_signal(number)
        out, _ = process.communicate(timeout=SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130 and "Optimization stopped early" in out
    assert len([*solver.glob("run_iter_*.solverstate")]) == 2


@needs_mpi
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals that a parent is gone")
def test_ranks_end_with_a_first_process_that_is_killed(solver):
    fields = {"display": 0, "test_interval": 10**6, "iter_size": 2}  # mpiexec ends when it cannot write
    (solver / "solver.prototxt").write_text('net: "net.prototxt"\n' + solver_text(**fields))
    process = start(solver, *command("--iterations", "100000", "--ranks", "2"))
    try:
        while "Solving" not in process.stdout.readline():
            assert process.poll() is None
        started = ranks_in(solver)
        assert len(started) == 2
    finally:
        process.kill()
    process.communicate(timeout=SECONDS)
    wait_for(lambda: not any(Path("/proc", str(rank)).exists() for rank in started))


@needs_mpi
def test_ranks_go_on_without_a_reader_of_their_log(solver):
    process = start(solver, *command("--iterations", "100", "--ranks", "2"))
    try:
        assert process.stdout.readline()
        process.stdout.close()
        assert (process.wait(SECONDS), process.stderr.read()) == (0, "")
    finally:
        process.stderr.close()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert (solver / "run_iter_100.solverstate").exists()


def ranks_in(folder: Path) -> list[int]:
    """The processes that an mpiexec has started there."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                is_rank = b"PMI_RANK=" in (entry / "environ").read_bytes() and (entry / "cwd").readlink() == folder
            except OSError:
                continue
            if is_rank:
                found.append(int(entry.name))
    assert found
    return sorted(found)


def wait_for(true) -> None:
    until = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


# -- without processes -------------------------------------------------------------------------------------------------


def test_an_mpiexec_that_is_not_there_is_refused_with_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"pip install 'layermem\[mpi\]' mpich"):
        launch.launcher()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mpiexec").write_text("")
    assert launch.launcher() == str(tmp_path / "bin" / "mpiexec")


class Output:
    """Standard output that does something at the first line, and may be full."""

    def __init__(self, act=lambda: None, is_full=False):
        self.act, self.is_full, self.null = act, is_full, open(os.devnull)  # noqa: SIM115
        self.fileno = self.null.fileno

    def write(self, text: str) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.act()

    def flush(self) -> None:
        pass


@pytest.fixture
def ending(tmp_path, monkeypatch):
    """Start a launcher that ends with a code at a SIGINT or SIGUSR1."""

    def start(code: int, output: Output) -> int:
        script = tmp_path / "mpiexec"
        script.write_text(f"#!/bin/sh\ntrap 'exit {code}' INT USR1\necho ready\nwhile :; do sleep 0.02; done\n")
        script.chmod(0o755)
        monkeypatch.setattr(launch, "launcher", lambda: str(script))
        monkeypatch.setattr(sys, "stdout", output)
        with output.null:
            return launch.start_ranks(2, ["train"])

    return start


@pytest.mark.parametrize(
    ("number", "of_ranks", "code"),
    [
        (signal.SIGINT, 130, 130),
        (signal.SIGTERM, 130, 143),
        (signal.SIGHUP, 138, 129),
        (signal.SIGUSR1, 138, 138),
        (signal.SIGTERM, 255, 143),
        (signal.SIGINT, 255, 130),
        (signal.SIGINT, 2, 130),  # of ranks that SIGINT killed, MPICH makes its number
        (signal.SIGTERM, 2, 2),
        (signal.SIGTERM, 0, 0),
        (signal.SIGHUP, 137, 137),
    ],
)
def test_ranks_that_a_signal_ends_have_the_exit_code_of_one_process(ending, number, of_ranks, code):
    assert ending(of_ranks, Output(lambda: os.kill(os.getpid(), number))) == code


def test_a_full_disk_of_standard_output_stops_the_ranks_as_a_signal_does(ending):
    with pytest.raises(InputError, match="cannot write the output: No space left on device"):
        ending(130, Output(is_full=True))


@pytest.mark.parametrize("count, starts", [(None, False), (1, False), (2, True)])
def test_ranks_are_started_where_there_are_none(count, starts):
    assert launch.starts_ranks(argparse.Namespace(group=Group(), ranks=count)) == starts


def test_a_launcher_and_the_option_may_not_differ():
    def work(transport):
        group = Group(transport)
        assert not launch.starts_ranks(argparse.Namespace(group=group, ranks=2))
        with pytest.raises(InputError, match="leave --ranks out"):
            launch.starts_ranks(argparse.Namespace(group=group, ranks=3))

    run_ranks(2, work)
    with pytest.raises(InputError, match="give 1 or more"):
        launch.starts_ranks(argparse.Namespace(group=Group(), ranks=0))


def test_ranks_share_the_cores_of_their_host(monkeypatch):
    monkeypatch.setattr(launch, "cores", lambda: frozenset(range(8)))
    assert run_ranks(2, lambda transport: launch.threads_per_rank(Group(transport))) == [4, 4]
    assert launch.threads_per_rank(Group()) == 8


def test_ranks_that_are_bound_to_cores_have_them(monkeypatch):
    def work(transport):
        return launch.threads_per_rank(Bound(transport))

    class Bound(Group):
        def gather(self, value):
            return super().gather((value[0], frozenset({self.rank})))

    monkeypatch.setattr(launch, "cores", lambda: frozenset({0}))
    assert run_ranks(2, work)[0] == 1


def test_the_other_ranks_print_and_write_nothing():
    def work(transport):
        arguments = argparse.Namespace(quiet=False, verbose=True, log="run", log_every=2, tensorboard="t", plot="p.png")
        launch.silence_others(arguments, Group(transport))
        return arguments.quiet, arguments.verbose, arguments.log, arguments.plot

    assert run_ranks(2, work) == [(False, True, "run", "p.png"), (True, False, None, None)]
