"""`layermem draw`."""

import pytest

pytest.importorskip("igraph")

LENET = "prototxt/mnist/train_val.prototxt"


def test_a_net_is_drawn_under_a_budget(layermem, tmp_path):
    path = tmp_path / "lenet.svg"
    ended = layermem("draw", "--net", LENET, "--budget", "60%", "--rankdir", "lr", "-o", path)
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    assert "of a budget of" in path.read_text() and "strategy auto" in path.read_text()


def test_the_test_phase_and_a_solver_are_drawn(layermem, tmp_path):
    assert layermem("draw", "--net", LENET, "--phase", "test", "-o", tmp_path / "a.svg").code == 0
    assert "TEST" in (tmp_path / "a.svg").read_text()
    assert layermem("draw", "--solver", "prototxt/mnist/solver.prototxt", "-o", tmp_path / "b.svg").code == 0
    assert "TRAIN" in (tmp_path / "b.svg").read_text()


def test_impossible_drawings_are_refused(layermem, tmp_path):
    ended = layermem("draw", "--net", LENET, "-o", tmp_path / "a.png")
    assert ended.code == 2 and "use a name that ends in .svg" in ended.sentence
    ended = layermem("draw", "--net", LENET, "--budget", "1KiB", "-o", tmp_path / "a.svg")
    assert ended.code == 3 and not (tmp_path / "a.svg").exists()
    assert layermem("draw", "--net", LENET, "-o", tmp_path / "none" / "a.svg").code == 2
