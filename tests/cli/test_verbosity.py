"""--quiet and --verbose."""

import re

import pytest

NET = ("--net", "prototxt/digits/train_val.prototxt")


def test_a_quiet_training_prints_nothing_and_saves_its_snapshot(layermem, solver, tmp_path):
    ended = layermem("train", "--solver", solver(), "--iterations", "1", "--quiet")
    assert (ended.code, ended.out, ended.err) == (0, "", "") and (tmp_path / "digits_iter_1.caffemodel").exists()
    words = ("--weights", tmp_path / "digits_iter_1.caffemodel", "--iterations", "2")
    ended = layermem("test", *NET, *words, "-q")
    assert ended.code == 0 and [line.split(" ")[0] for line in ended.out.splitlines()] == ["Loss:", "accuracy", "loss"]


def test_a_quiet_restart_warns_of_damaged_snapshots(layermem, solver, tmp_path):
    file = solver(snapshot=1)
    assert layermem("train", "--solver", file, "--iterations", "2", "-q").code == 0
    (tmp_path / "digits_iter_2.solverstate").write_bytes(b"")
    words = ("train", "--solver", file, "--restart", "-q")
    earlier = layermem(*words, "--iterations", "2")
    assert (earlier.code, earlier.out) == (0, "")
    sentence = f"layermem: warning: the snapshot '{tmp_path}/digits_iter_2.solverstate' is not complete, so an earlier"
    assert sentence in " ".join(earlier.err.split()) and "iter_1" not in earlier.err
    for state in tmp_path.glob("*.solverstate"):
        state.write_bytes(b"")
    none = " ".join(layermem(*words, "--iterations", "1").err.split())
    assert "digits_iter_1.solverstate' is not complete, and there is no earlier one: " in none
    assert f"layermem: warning: there is no complete snapshot '{tmp_path}/digits_iter_N' to restart from" in none
    for file_of_run in tmp_path.glob("digits_iter_*"):
        file_of_run.unlink()
    assert layermem(*words, "--iterations", "1").err == ""


def test_quiet_leaves_out_warnings_but_not_errors(layermem, prototxt):
    net = prototxt(
        'name: "n" layer { name: "d" type: "Input" top: "d" input_param { shape { dim: 1 dim: 2 } } }\n'
        'layer { name: "l" type: "ReLU" bottom: "d" top: "l" relu_param { engine: CAFFE } }'
    )
    normal, quiet = layermem("show", "--net", net), layermem("show", "--net", net, "-q")
    assert normal.out == quiet.out and quiet.err == ""
    assert layermem("show", "--net", "none.prototxt", "-q").sentence.startswith("layermem: none.prototxt: no such file")


def test_verbose_prints_steps_with_times_on_standard_error(layermem, tmp_path):
    ended = layermem("plan", *NET, "--save", tmp_path / "p.json", "--verbose")
    assert ended.code == 0 and ended.out == layermem("plan", *NET).out
    lines = " ".join(ended.err.split())
    for step in (
        "read prototxt/digits/train_val.prototxt: ",
        "planned LeNet (digits) x64, strategy liveness",
        "wrote ",
    ):
        assert re.search(rf"\[ \d+\.\d\d s\] {re.escape(step)}", lines), step
    assert layermem("plan", *NET).err == ""


@pytest.mark.parametrize("option", ["--quiet", "--verbose"])
def test_the_help_of_a_part_has_the_option(layermem, option):
    assert option in layermem("data", "check", "--help").out
