"""Flags in every form that gflags takes."""

import pytest

from layermem.cli.caffe_tools.gflags import Flag, FlagError, parse_flags

FLAGS = (
    Flag("solver", "", "a file"),
    Flag("iterations", 50, "a number"),
    Flag("resize_width", 0, "a number"),
    Flag("shuffle", False, "random"),
    Flag("prefix", True, "a prefix"),
    Flag("notes", "", "a text whose name begins with no"),
)


def parse(*words):
    values, others = parse_flags(words, FLAGS)
    return {name: value for name, value in values.items() if value != defaults()[name]}, others


def defaults():
    return parse_flags([], FLAGS)[0]


@pytest.mark.parametrize("dash", ["-", "--"])
@pytest.mark.parametrize("join", ["=", " "])
@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("solver", "a b.prototxt", "a b.prototxt"),
        ("solver", "", ""),
        ("solver", "a=b", "a=b"),
        ("solver", "-", "-"),
        ("iterations", "7", 7),
        ("iterations", "-7", -7),
        ("iterations", "0x10", 16),
        ("resize-width", "3", 3),
        ("notes", "train", "train"),
    ],
)
def test_a_value_follows_an_equals_sign_or_is_the_next_word(dash, join, name, text, value):
    words = [f"{dash}{name}={text}"] if join == "=" else [f"{dash}{name}", text]
    values, others = parse_flags(["before", *words, "train"], FLAGS)
    assert values[name.replace("-", "_")] == value and others == ["before", "train"]


@pytest.mark.parametrize("dash", ["-", "--"])
@pytest.mark.parametrize(
    ("word", "is_on"),
    [
        ("shuffle", True),
        ("noshuffle", False),
        *((f"shuffle={text}", True) for text in ("1", "t", "true", "True", "y", "yes", "YES")),
        *((f"shuffle={text}", False) for text in ("0", "f", "false", "n", "no")),
    ],
)
def test_a_switch_takes_no_next_word(dash, word, is_on):
    values, others = parse_flags([dash + word, "false"], FLAGS)
    assert values["shuffle"] is is_on and others == ["false"]


def test_the_last_value_counts_and_two_dashes_end_the_flags():
    assert parse("-iterations", "1", "--iterations=2", "-prefix", "--noprefix") == (
        {"iterations": 2, "prefix": False},
        [],
    )
    assert parse("train", "--", "-iterations", "1") == ({}, ["train", "-iterations", "1"])
    assert parse("-") == ({}, ["-"])


def test_a_file_has_flags_in_its_lines(tmp_path):
    (tmp_path / "inner").write_text("--shuffle\n")
    (tmp_path / "flags").write_text(f"# notes\n\n--solver=a.prototxt\n -iterations=3\n--flagfile={tmp_path}/inner\n")
    values, others = parse(f"--flagfile={tmp_path}/flags", "train")
    assert others == ["train"]
    assert {name: values[name] for name in ("solver", "iterations", "shuffle")} == {
        "solver": "a.prototxt",
        "iterations": 3,
        "shuffle": True,
    }


def test_a_file_that_names_itself_is_refused(tmp_path):
    (tmp_path / "flags").write_text(f"--flagfile={tmp_path}/flags\n")
    with pytest.raises(FlagError, match="does it name itself"):
        parse(f"--flagfile={tmp_path}/flags")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["-solvr", "a"], "unknown command line flag 'solvr'"),
        (["--nosolver"], "unknown command line flag 'nosolver'"),
        (["-noiterations=3"], "unknown command line flag 'noiterations'"),
        (["-solver"], "flag '--solver' is missing its argument"),
        (["-iterations", "many"], "illegal value 'many' specified for int32 flag 'iterations'"),
        (["-iterations=1.5"], "illegal value '1.5' specified for int32 flag"),
        (["-iterations=2147483648"], "illegal value '2147483648' specified for int32 flag"),
        (["-shuffle=maybe"], "illegal value 'maybe' specified for bool flag 'shuffle'"),
    ],
)
def test_wrong_flags_are_refused_with_exit_code_1(words, what):
    with pytest.raises(FlagError, match=what) as caught:
        parse(*words)
    assert caught.value.exit_code == 1
