"""How the command ends, whatever the verb."""

import subprocess
import sys

import pytest

from layermem import cli
from layermem.cli import show
from layermem.errors import BudgetError, DeviceError, InputError

NET = "prototxt/digits/train_val.prototxt"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("is wrong", path="a.prototxt", line=3), 2),
        (BudgetError("does not fit", budget=1, minimum=2), 3),
        (DeviceError("is on fire"), 4),
        (KeyboardInterrupt(), 130),
    ],
)
def test_every_error_of_ours_is_a_line_and_its_exit_code(layermem, monkeypatch, error, code):
    def fail(arguments):
        raise error

    monkeypatch.setattr(show, "run_show", fail)
    ended = layermem("show", "--net", NET)
    assert ended.code == code and len(ended.err.splitlines()) == 1 and ended.err.startswith("layermem: ")


def test_an_error_of_several_lines_is_one_line(layermem, monkeypatch):
    def fail(arguments):
        raise InputError("is\n    wrong")

    monkeypatch.setattr(show, "run_show", fail)
    assert layermem("show", "--net", NET).err == "layermem: is wrong\n"


def test_a_reader_that_has_seen_enough_ends_it_quietly():
    words = [sys.executable, "-m", "layermem", "show", "--net", "prototxt/resnet152/train_val.prototxt"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        first = run.stdout.readline()
        run.stdout.close()
        error = run.stderr.read()
    assert first.startswith("ResNet-152") and error == "" and run.returncode == 0


def test_without_a_verb_it_says_which_there_are(layermem):
    ended = layermem()
    assert ended.code == 2 and "usage: layermem" in ended.err
    ended = layermem("--help")
    assert ended.code == 0
    for verb in ("train", "test", "plan", "compare", "fit", "show", "time", "devices", "convert"):
        assert f"\n    {verb} " in ended.out


def test_the_version_is_that_of_the_package(layermem):
    ended = layermem("--version")
    assert ended.code == 0 and ended.out == f"layermem {cli.main.__globals__['__version__']}\n"
