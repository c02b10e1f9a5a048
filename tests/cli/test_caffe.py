"""The verb `caffe`: its help, its version, and flags that every program has."""

import pytest

from layermem.cli.caffe import ACTIONS, CONVERTERS, TOOLS

PROGRAMS = ("", *TOOLS, *CONVERTERS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_has_a_usage_a_version_and_glogs_flags(layermem, name):
    words = [name] if name else []
    ended = layermem("caffe", *words, "-version")
    assert (ended.code, ended.out) == (0, f"{name or 'caffe'} version 1.0.0\n")
    for flag in ("--help=true", "-helpshort"):
        ended = layermem("caffe", *words, flag)
        assert ended.code == 1 and ended.out.startswith(f"usage: {name or 'caffe'} [FLAGS] ")
        assert ("-logtostderr" in ended.out) == (flag != "-helpshort")
    ended = layermem("caffe", *words, "-no_such_flag")
    assert (ended.code, ended.out) == (1, "") and "unknown command line flag 'no_such_flag'" in ended.sentence


def test_without_words_caffe_prints_its_usage_as_caffe_does(layermem):
    for words in ([], ["train", "test"], ["-logtostderr"]):
        ended = layermem("caffe", *words)
        assert (ended.code, ended.err) == (0, "") and ended.out.startswith("usage: caffe [FLAGS] COMMAND")


def test_the_help_of_the_verb_names_all_programs(layermem):
    for flag in ("-h", "--help"):
        ended = layermem("caffe", flag)
        assert ended.code == 0 and {*ACTIONS, *TOOLS, *CONVERTERS} <= {*ended.out.split()}


def test_lines_go_where_the_flags_say(layermem, tmp_path):
    words = "caffe", "train", "-solver", "absent.prototxt"
    assert layermem(*words, "-nolog_prefix").err == "absent.prototxt: no such file; give an existing prototxt solver\n"
    assert layermem(*words, "-log_dir", tmp_path).code == 134
    assert "] absent.prototxt: no such file" in (tmp_path / "caffe.ERROR").read_text()
    name = "convert_imageset"
    assert layermem("caffe", name, "/", tmp_path / "none.txt", "db", f"-log_dir={tmp_path}").code == 134
    assert "none.txt: no such file" in (tmp_path / "convert_imageset.INFO").read_text()


def test_what_the_system_refuses_is_a_line_of_the_log_too(layermem, tmp_path, monkeypatch):
    def refuse(*words):
        raise PermissionError(13, "Permission denied", "a/b")

    monkeypatch.setattr("layermem.cli.caffe_tools.databases.mean_image", refuse)
    ended = layermem("caffe", "compute_image_mean", tmp_path)
    assert ended.code == 134 and ended.err.splitlines()[-1].startswith("F") and "layermem: " not in ended.err
    assert ended.err.endswith("] a/b: Permission denied; change its permissions, or those of its folders\n")


def test_verbosity_adds_the_steps_of_layermem(layermem, tmp_path):
    words = "caffe", "time", "-model", "prototxt/digits/train_val.prototxt", "-iterations", "1"
    assert "read prototxt/digits/train_val.prototxt" not in layermem(*words).err
    lines = layermem(*words, "-v", "1").err.splitlines()
    assert any("read prototxt/digits/train_val.prototxt" in line for line in lines)
    assert all(line[0] in "IW" and "] " in line for line in lines)
