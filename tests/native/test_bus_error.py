"""A mapped file that fails gives an error message and exit code 4 instead of a signal."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to reach a file without a name")
ARENA = """
import os, sys
from pathlib import Path
from layermem import _native
from layermem.backends.arena import Arena
_native.exit_on_bus_error()
arena = Arena(1 << 20, spill=Path(sys.argv[1]))
"""
CUT = """
for number in os.listdir("/proc/self/fd"):
    name = f"/proc/self/fd/{number}"
    if os.path.lexists(name) and sys.argv[1] in os.readlink(name):
        os.truncate(name, 0)
arena.bytes[:] = 1
"""
SENT = "os.kill(os.getpid(), 7)"


def run(code, folder):
    return subprocess.run([sys.executable, "-c", ARENA + code, str(folder)], capture_output=True, text=True)


def test_a_spill_file_that_is_cut_short_ends_in_exit_code_4(tmp_path):
    ended = run(CUT, tmp_path)
    assert ended.returncode == 4 and "the file of --spill or a data set was cut short" in ended.stderr
    assert "resume from the last snapshot" in ended.stderr


def test_the_signal_of_another_process_keeps_its_effect(tmp_path):
    assert run(SENT.replace("7", str(int(signal.SIGBUS))), tmp_path).returncode == -signal.SIGBUS


def test_training_whose_spill_file_is_cut_short_ends_in_exit_code_4(tmp_path):
    words = ["train", "--solver", "prototxt/digits/solver.prototxt", "--strategy", "hybrid", "--spill", str(tmp_path)]
    words += ["--iterations", "1000000"]
    training = subprocess.Popen(
        [sys.executable, "-m", "layermem", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 60
        while training.poll() is None and time.monotonic() < deadline:  # again, where the file was not yet reserved
            with contextlib.suppress(OSError):  # the process, or a file of it, is gone
                for file in Path(f"/proc/{training.pid}/fd").iterdir():
                    if str(tmp_path) in os.readlink(file):
                        os.truncate(file, 0)
            time.sleep(0.05)
        errors = training.communicate(timeout=60)[1]
    finally:
        training.kill()
        training.wait()
    assert training.returncode == 4 and "a file that is mapped into memory failed" in errors
