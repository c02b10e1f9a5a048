"""Flags in every form that gflags takes; the outcomes are those of gflags 2.2.2."""

import pytest

from layermem.cli.caffe_tools.gflags import Flag, parse_flags

FLAGS = (
    Flag("solver", "", "a file"),
    Flag("iterations", 50, "a number"),
    Flag("resize_width", 0, "a number"),
    Flag("shuffle", False, "random"),
    Flag("prefix", True, "a prefix"),
    Flag("notes", "", "a text whose name begins with no"),
)
DEFAULTS = {flag.name: flag.default for flag in FLAGS}


def parse(*words):
    """The values that are no defaults, and the other words, of a line without errors."""
    values, others, errors = parse_flags(words, FLAGS, "tool")
    assert not errors
    return {name: values[name] for name, default in DEFAULTS.items() if values[name] != default}, others


@pytest.mark.parametrize("dash", ["-", "--"])
@pytest.mark.parametrize("join", ["=", " "])
@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("solver", "a b.prototxt", "a b.prototxt"),
        ("solver", "a=b", "a=b"),
        ("solver", "-", "-"),
        ("solver", "-iterations", "-iterations"),
        ("iterations", "7", 7),
        ("iterations", "-7", -7),
        ("iterations", "+5", 5),
        ("iterations", " 5", 5),
        ("iterations", "010", 10),
        ("iterations", "0x10", 16),
        ("iterations", "0X1f", 31),
        ("resize-width", "3", 3),
        ("notes", "train", "train"),
    ],
)
def test_a_value_follows_an_equals_sign_or_is_the_next_word(dash, join, name, text, value):
    words = [f"{dash}{name}={text}"] if join == "=" else [f"{dash}{name}", text]
    assert parse("before", *words, "train") == ({name.replace("-", "_"): value}, ["before", "train"])


@pytest.mark.parametrize("dash", ["-", "--"])
@pytest.mark.parametrize(
    ("word", "is_on"),
    [
        ("shuffle", True),
        ("noshuffle", False),
        ("noshuffle=1", False),
        *((f"shuffle={text}", True) for text in ("1", "t", "true", "True", "y", "yes", "YES")),
        *((f"shuffle={text}", False) for text in ("0", "f", "false", "n", "no")),
    ],
)
def test_a_switch_takes_no_next_word(dash, word, is_on):
    assert parse(dash + word, "false") == ({"shuffle": True} if is_on else {}, ["false"])


def test_the_last_value_counts_and_two_dashes_end_the_flags():
    assert parse("-iterations", "1", "--iterations=2", "-prefix", "--noprefix") == (
        {"iterations": 2, "prefix": False},
        [],
    )
    assert parse("--", "-iterations", "1") == ({}, ["-iterations", "1"])
    assert parse("train", "--", "-b") == ({}, ["-b", "train"])  # gflags moves other words to the end
    assert parse("-") == ({}, ["-"])


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("-flagfile={0}/own", {"solver": "ff"}),  # a line without a dash names the program tool, and then others
        ("-flagfile {0}/own -solver=late", {"solver": "late"}),
        ("-solver=early --flagfile {0}/own", {"solver": "ff"}),
        ("-flagfile={0}/own,{0}/all", {"solver": "ff", "iterations": 4, "shuffle": True}),
        ("-flagfile={0}/outer", {"iterations": 4, "shuffle": True}),
        ("-flagfile={0}/skipped", {}),
    ],
)
def test_a_file_has_flags_in_its_lines(tmp_path, words, values):
    (tmp_path / "own").write_text("--solver=ff\n# notes\n\nother\n -iterations=9\n--shuffle\n")
    (tmp_path / "all").write_text("x\nt*l y\n--iterations=4\n--shuffle\nother*\n--iterations=5\n")
    (tmp_path / "outer").write_text(f"--flagfile={tmp_path}/all\n")
    (tmp_path / "skipped").write_text("--solver a\n--unknown=3\n--nosolver\n--solver\n")
    assert parse(*words.format(tmp_path).split()) == (values, [])


def test_values_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("FLAGS_solver", "a.prototxt")
    for words in (["-fromenv=solver"], ["--tryfromenv", "solver,iterations"]):
        assert parse(*words) == ({"solver": "a.prototxt"}, [])
    assert errors_of("-fromenv=solver,iterations") == ["FLAGS_iterations not found in environment"]


def test_names_of_undefok_may_be_unknown():
    assert parse("-undefok=foo,bar", "-foo=3", "--nobar", "x") == ({}, ["x"])
    assert errors_of("-undefok=foo", "-foo", "-bar") == ["unknown command line flag 'bar'"]


def errors_of(*words):
    return parse_flags(words, FLAGS)[2]


@pytest.mark.parametrize(
    ("words", "errors"),
    [
        (["-solvr", "a"], ["unknown command line flag 'solvr'"]),
        (["---solver=a"], ["unknown command line flag '-solver'"]),
        (["-no"], ["unknown command line flag 'no'"]),
        (["-=3"], ["unknown command line flag ''"]),
        (["--nosolver"], ["boolean value (nosolver) specified for string command line flag"]),
        (["-noiterations=3"], ["boolean value (noiterations) specified for int32 command line flag"]),
        (["-solver"], ["flag '-solver' is missing its argument; flag description: a file"]),
        (["-iterations=99999999999"], ["illegal value '99999999999' specified for int32 flag 'iterations'"]),
        *(
            (["-iterations", text], [f"illegal value '{text}' specified for int32 flag 'iterations'"])
            for text in ("many", "1.5", "5 ", "1_0", "-0x10", "", "2147483648")
        ),
        (["-shuffle=maybe"], ["illegal value 'maybe' specified for bool flag 'shuffle'"]),
        (["-shuffle="], ["illegal value '' specified for bool flag 'shuffle'"]),
        (
            ["-iterations", "abc", "-solvr"],
            ["illegal value 'abc' specified for int32 flag 'iterations'", "unknown command line flag 'solvr'"],
        ),
    ],
)
def test_all_wrong_flags_are_reported(words, errors):
    assert errors_of(*words) == errors


def test_files_of_flags_that_cannot_be_read_are_reported(tmp_path):
    (tmp_path / "flags").write_text(f"--flagfile={tmp_path}/flags\n")
    (error,) = errors_of(f"--flagfile={tmp_path}/flags")
    assert "does it name itself" in error
    (error,) = errors_of(f"--flagfile={tmp_path}/none")
    assert "none: no such file" in error


@pytest.mark.parametrize("name", ["fromenv", "tryfromenv"])
def test_a_variable_that_names_itself_is_reported(name, monkeypatch):
    monkeypatch.setenv(f"FLAGS_{name}", name)
    (error,) = errors_of(f"--{name}={name}")
    assert "does it name itself" in error
