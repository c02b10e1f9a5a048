"""How the command ends, whatever the verb."""

import os
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
    assert ended.code == code and ended.sentence


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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("device_query", "-gpu", "0"), "Caffe's 'device_query' is `layermem devices` here"),
        (("train", "-solver", "s.prototxt"), "Caffe's '-solver' is written --solver here"),
        (("train", "--solver=s.prototxt", "-weights=w"), "Caffe's '-weights' is written --weights here"),
        (("train", "--solver", "s.prototxt", "--gpu=all"), "Caffe's '--gpu' is written --device cuda here"),
        (("train", "--solver", "s.prototxt", "--sigint_effect", "stop"), "is written --sigint-effect here"),
        (("time", "-model", "net.prototxt"), "Caffe's '-model' is written --net here; `layermem time --help` has"),
    ],
)
def test_a_word_of_the_caffe_command_is_answered_with_ours(layermem, words, says):
    ended = layermem(*words)
    assert ended.code == 2 and says in ended.sentence


def test_words_that_both_commands_know_are_not_taken_for_caffes(layermem):
    ended = layermem("plan", "--net", NET, "--stage", "pool*", "--net-stage", "solver", "--phase=TEST")
    assert ended.code == 0 and not ended.err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no device that is always full")
def test_an_output_that_the_disk_has_no_room_for_is_one_sentence():
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "layermem", "show", "--net", NET]
        ended = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    says = "layermem: cannot write the output: No space left on device; free some space or write to another disk"
    assert (ended.returncode, " ".join(ended.stderr.split())) == (2, says)


def test_a_checkout_without_its_native_module_says_how_to_build_it(layermem, monkeypatch):
    def fail(arguments):
        raise ImportError("cannot import name '_native' from 'layermem'", name="layermem")

    monkeypatch.setattr(show, "run_show", fail)
    ended = layermem("show", "--net", NET)
    assert ended.code == 2 and "build it with `make native`" in ended.sentence
