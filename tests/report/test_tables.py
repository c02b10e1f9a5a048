"""Tables in a pipe and on a terminal."""

import io
import re

import pytest

from layermem.cli.compare import HEADINGS, MEASURED, OPTIONAL
from layermem.report.net_table import format_count
from layermem.report.tables import plain_table, print_table, shorten


def test_plain_columns_are_aligned_and_numbers_flush_right():
    text = plain_table(["net", ">peak"], [["lenet", "1"], ["x", "1,000"]], total=["all", "1,001"], title="nets")
    assert text.splitlines() == ["nets", "net     peak", "lenet      1", "x      1,000", "all    1,001"]


def test_no_plain_line_ends_in_a_blank():
    assert plain_table(["a", "b"], [["x", ""]]).splitlines() == ["a  b", "x"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


LEFT_OUT = "left out: bottoms (a wider terminal and --json have it)"
WIDE = ["layer", "bottoms", ">bytes"], [["convolution_1", "data label", "1.20 MiB"]]


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (40, ["layer          bottoms        bytes", "convolution_1  data label  1.20 MiB"]),
        (32, ["layer          bottoms     bytes", "convolution_1  data     1.20 MiB", "               label"]),
        (30, ["layer             bytes", "convolution_1  1.20 MiB", LEFT_OUT]),
    ],
)
def test_a_wide_table_folds_text_and_then_leaves_out_optional_columns(monkeypatch, capsys, width, lines):
    monkeypatch.setattr("layermem.report.tables.columns", lambda: width)
    print_table(*WIDE, optional=["bottoms"])
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_a_terminal_that_no_width_would_help_names_the_columns_and_json(kind, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    file, names = kind(), [f">{letter * 40}" for letter in "abc"]
    print_table(["layer", *names], [["x", "1", "2", "3"]], optional=names[:2], file=file)
    assert file.getvalue().endswith(f"left out: {'a' * 40} (--json has it)\n")
    file = kind()
    print_table(["layer", ">bytes"], [["x", "1"]], optional=[">bytes"], file=file)
    assert "left out" not in file.getvalue()


def test_words_are_shortened_in_the_middle_only_where_nothing_else_helps(monkeypatch):
    monkeypatch.setattr("layermem.report.tables.columns", lambda: 20)
    text = plain_table(["layer", ">bytes"], [["convolution_1", "1.20 MiB"]])
    assert text.splitlines() == ["layer          bytes", "conv..on_1  1.20 MiB"]
    monkeypatch.setattr("layermem.report.tables.columns", lambda: 22)
    assert plain_table(["a"], [["recompute-exact vdnn-all"]]).splitlines() == ["a", "recompute-exact", "vdnn-all"]


@pytest.mark.parametrize(
    ("word", "width", "short"),
    [("inception_3a/3x3", 10, "ince../3x3"), ("short", 5, "short"), ("abcdefgh", 3, "a..h"), ("abcdefgh", 5, "ab..h")],
)
def test_a_long_word_keeps_its_begin_and_its_end(word, width, short):
    assert shorten(word, width) == short


@pytest.mark.parametrize("number", ["32x3x224x224", "1,234,567", "+12.3", "99.9%", ">=10,000"])
def test_numbers_and_shapes_are_never_cut(number):
    assert shorten(number, 3) == number


def test_on_a_terminal_a_name_with_brackets_is_shown_as_it_is():
    file = Terminal()
    print_table(["layer"], [["conv[red]1"]], total=["1 layer"], file=file)
    assert "conv[red]1" in file.getvalue() and "1 layer" in file.getvalue()


def test_titles_and_totals_that_look_like_markup_are_shown_unchanged_on_a_terminal():
    file = Terminal()
    print_table(["layer"], [["a"]], total=["[/x]"], title="net [/b] x2", file=file)
    assert "net [/b] x2" in file.getvalue() and "[/x]" in file.getvalue()


@pytest.mark.parametrize("kind", [Terminal, io.StringIO])
def test_a_name_cannot_command_the_terminal(kind):
    file = kind()
    print_table(["layer"], [["a\x1b]0;owned\x07b"]], title="net\x1b[2J\r\u202e", file=file)
    assert "a\\x1b]0;owned\\x07b" in file.getvalue() and "net\\x1b[2J" in file.getvalue()
    assert not set("\x07\r\u202e") & set(file.getvalue())


@pytest.mark.parametrize("kind", [Terminal, io.StringIO])
def test_the_comparison_breaks_no_word_on_80_columns(monkeypatch, kind):
    monkeypatch.setattr("layermem.report.tables.columns", lambda: 80)
    row = ["recompute-approx", "yes", "1,023 MiB", "100.0 %", "100.0 %", "1,023 MiB", "1,234 ms", "+12.3 %"]
    for headings, cells in ((HEADINGS, row), ([*HEADINGS, *MEASURED], [*row, "1,023 MiB", "1,234 ms"])):
        file = kind()
        print_table(headings, [cells, ["vdnn-conv", *cells[1:]]], optional=OPTIONAL, file=file)
        shown = re.sub("\x1b\\[[0-9;]*m", "", file.getvalue())
        words = shown.split()
        assert {"vdnn-conv", "recompute-approx"} <= set(words)
        assert max(map(len, shown.splitlines())) <= 80 and "overhea" not in words


def test_counts_have_three_figures():
    numbers = [0, 999, 1000, 12345, 999_499, 3.858e9, 2e12]
    assert [format_count(n) for n in numbers] == ["0", "999", "1.00 k", "12.3 k", "999 k", "3.86 G", "2.00 T"]
