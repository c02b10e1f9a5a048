"""`layermem setup-caffe`: a tree of programs, which run from any folder, and the module caffe."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from layermem.cli.caffe import CONVERTERS, TOOLS
from layermem.cli.setup_caffe import MARK

ROOT = Path(__file__).parents[2]


def run(words, folder, **environment):
    """The exit code and standard error of a program, in an environment without PYTHONPATH."""
    given = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment
    done = subprocess.run(words, cwd=folder, env=given, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def tree(layermem, tmp_path):
    """The tree below a folder with a blank and a quote in its name."""
    path = tmp_path / "it's a" / "caffe"
    ended = layermem("setup-caffe", path)
    assert ended.code == 0 and "10 programs in build, and the module caffe in python" in " ".join(ended.out.split())
    return path


def test_every_program_is_there_under_both_names_and_can_be_run(tree):
    names = [f"build/tools/{name}" for name in ("caffe", *TOOLS)]
    names += [f"build/examples/{folder}/{name}" for name, folder in CONVERTERS.items()]
    for name in names:
        for path in (tree / name, tree / f"{name}.bin"):
            assert os.access(path, os.X_OK) and path.read_text().startswith("#!/bin/sh\n")
    code, out, _ = run([tree / "build/tools/caffe.bin", "--version"], "/")
    assert (code, out) == (0, "caffe version 1.0.0\n")


def test_programs_pass_on_words_exit_codes_and_the_log(tree, tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('modules of the working folder are not imported')")
    code, out, error = run([tree / "build/tools/caffe", "train", "--solver=a file.prototxt"], tmp_path)
    assert (code, out) == (134, "") and "] a file.prototxt: no such file" in error and error.startswith("F")
    code, out, error = run([tree / "build/tools/convert_imageset", "/", "no list", "db"], tmp_path)
    assert code == 134 and "] no list: no such file" in error


def test_the_module_is_layermem_caffe_with_the_options_of_the_environment(tree, tmp_path):
    script = (
        "import caffe, caffe.io; from caffe import layers as L; from caffe.proto import caffe_pb2;"
        "import layermem.caffe.modes as modes; print(caffe.__name__, modes.options()['budget'])"
    )
    path = os.pathsep.join((str(tree / "python"), str(ROOT)))
    code, out, error = run([sys.executable, "-c", script], tmp_path, PYTHONPATH=path, LAYERMEM_BUDGET="2GiB")
    assert (code, out, error) == (0, "layermem.caffe 2GiB\n", "")


def test_a_tree_may_be_written_again_and_keeps_other_files(layermem, tree):
    (tree / "examples").mkdir()
    program = tree / "build/tools/caffe"
    program.write_text("an older one")
    assert layermem("setup-caffe", tree).code == 0
    assert program.read_text().startswith("#!/bin/sh") and (tree / "examples").is_dir()
    assert (tree / "README").read_text().startswith(MARK)


@pytest.mark.parametrize("name", ["Makefile", "README", "build/tools/caffe"])
def test_a_folder_of_something_else_is_refused_and_left_as_it_is(layermem, tmp_path, name):
    path = tmp_path / "caffe" / name
    path.parent.mkdir(parents=True)
    path.write_text("# Caffe")
    ended = layermem("setup-caffe", tmp_path / "caffe")
    assert ended.code == 2 and "holds other files, which could be overwritten; give a new folder" in ended.sentence
    assert [each.read_text() for each in tmp_path.rglob("*") if each.is_file()] == ["# Caffe"]
    assert "is a file; give a new folder" in layermem("setup-caffe", path).sentence


def test_a_folder_that_cannot_be_written_is_refused(layermem, tmp_path):
    (tmp_path / "file").write_text("")
    ended = layermem("setup-caffe", tmp_path / "file" / "caffe")
    assert ended.code == 2 and "Not a directory; correct the path, of which a part is a file" in ended.sentence


def test_an_empty_folder_is_taken(layermem, tmp_path):
    assert layermem("setup-caffe", tmp_path).code == 0 and (tmp_path / "build/tools/caffe").exists()
