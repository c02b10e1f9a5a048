"""Signals to the `layermem` program before it can act on them."""

import signal
import subprocess
import sys

import pytest

# Runs as the program, and gets a signal while a module is imported, whose importer then fails.
PROGRAM = """
import os, signal, sys
number, sys.argv = int(sys.argv[1]), ["/bin/layermem", *sys.argv[2:]]

class Finder:
    def find_spec(self, name, path, target=None):
        if name == "layermem.cli.main":
            os.kill(os.getpid(), number)

sys.meta_path.insert(0, Finder())
from layermem.cli import main
sys.exit(main())
"""


def run(number: int, *words: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", PROGRAM, str(int(number)), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def test_an_interrupt_during_imports_is_one_line():
    ended = run(signal.SIGINT, "show", "--help")
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "layermem: interrupted\n")


@pytest.mark.parametrize("name", ["SIGHUP", "SIGUSR1"])
def test_other_programs_end_at_a_signal_as_ever(name):
    for words in (["show", "--help"], ["draw", "train"]):
        assert run(getattr(signal, name), *words).returncode == -getattr(signal, name)


@pytest.mark.parametrize("name, iterations", [("SIGHUP", [1, 3]), ("SIGUSR1", [3])])
def test_a_training_obeys_a_signal_that_came_during_its_start(name, iterations, tmp_path):
    words = ["train", "--solver", "prototxt/digits/solver.prototxt", "--iterations", 3]
    ended = run(getattr(signal, name), *words, "--set", f'snapshot_prefix="{tmp_path}/digits"')
    assert ended.returncode == 0, ended.stderr
    models = {path.name for path in tmp_path.glob("*.caffemodel")}
    assert models == {f"digits_iter_{number}.caffemodel" for number in iterations}
