"""The verb `caffe`: its help, its version, and flags that every program has."""

import pytest

from layermem.cli.caffe import ACTIONS, CONVERTERS, TOOLS

WITHOUT_FLAGS = tuple(name for name in TOOLS if name == "extract_features" or name.startswith("upgrade"))


@pytest.mark.parametrize("name", ["", *(name for name in (*TOOLS, *CONVERTERS) if name not in WITHOUT_FLAGS)])
def test_every_program_has_a_usage_a_version_and_glogs_flags(layermem, name):
    words = [name] if name else []
    ended = layermem("caffe", *words, "-version")
    assert (ended.code, ended.out) == (0, f"{name or 'caffe'} version 1.0.0\n")
    for flag in ("--help=true", "-helpfull", "-helpon=caffe", "-helpmatch", "-no_such_flag -help", "-helpshort"):
        ended = layermem("caffe", *words, *flag.split(), "x")
        assert ended.code == 1 and ended.out.startswith(f"usage: {name or 'caffe'} [FLAGS] ")
        assert ("-logtostderr" in ended.out) == (flag != "-helpshort")
    ended = layermem("caffe", *words, "-no_such_flag", "-v=x")
    assert (ended.code, ended.out) == (1, "") and ended.err.splitlines() == [
        "ERROR: unknown command line flag 'no_such_flag'",
        "ERROR: illegal value 'x' specified for int32 flag 'v'",
    ]


@pytest.mark.parametrize("name", WITHOUT_FLAGS)
def test_words_with_dashes_are_no_flags_of_programs_without_any(layermem, name):
    for words in ([], ["-version"], ["-logtostderr"]):
        ended = layermem("caffe", name, *words)
        assert (ended.code, ended.out) == (1, "") and ended.err.startswith("E")
        assert f"] Usage: {name} " in ended.err


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
    def refuse(*words, **options):
        raise PermissionError(13, "Permission denied", "a/b")

    monkeypatch.setattr("layermem.cli.caffe_tools.databases.open_database", refuse)
    ended = layermem("caffe", "compute_image_mean", tmp_path)
    assert ended.code == 134 and ended.err.splitlines()[-1].startswith("F") and "layermem: " not in ended.err
    assert ended.err.endswith("] a/b: Permission denied; change its permissions, or those of its folders\n")


def test_verbosity_adds_the_steps_of_layermem(layermem, tmp_path):
    words = "caffe", "time", "-model", "prototxt/digits/train_val.prototxt", "-iterations", "1"
    assert "read prototxt/digits/train_val.prototxt" not in layermem(*words).err
    lines = layermem(*words, "-v", "1").err.splitlines()
    assert any("read prototxt/digits/train_val.prototxt" in line for line in lines)
    assert all(line[0] in "IW" and "] " in line for line in lines)
