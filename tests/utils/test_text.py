"""Text within the columns of a terminal."""

import pytest

from layermem.utils.text import MAX_COLUMNS, abbreviated, columns, count_text, printable, shape_text, wrap


@pytest.mark.parametrize(("given", "used"), [("80", 80), ("300", MAX_COLUMNS), ("100", 100), ("3", 40)])
def test_the_columns_are_those_of_the_terminal_and_never_more_than_a_hundred(monkeypatch, given, used):
    monkeypatch.setenv("COLUMNS", given)
    assert columns() == used


def test_a_line_that_fits_stays_as_it_is():
    assert wrap("net.prototxt:3: layer 'a' is wrong", 60) == "net.prototxt:3: layer 'a' is wrong"


def test_a_sentence_goes_on_two_blanks_further_in():
    assert wrap("one two three four", 9) == "one two\n  three\n  four"


def test_a_labelled_line_goes_on_below_its_text():
    assert wrap("  peak at  one two three four", 20) == ("  peak at  one two\n           three\n           four")


def test_a_short_command_in_backticks_stays_together():
    assert wrap("see `layermem plan --help`", 20).splitlines() == ["see", "  `layermem plan --help`"]


def test_a_long_line_lacks_its_middle():
    assert abbreviated("a" * 4000) == "a" * 4000
    assert abbreviated("a" * 2000 + "b" * 10**6 + "c" * 2000) == "a" * 2000 + "..." + "c" * 2000


def test_a_word_is_never_broken():
    assert wrap("see /a/very-long/path/of/a/file now", 12).splitlines() == [
        "see",
        "  /a/very-long/path/of/a/file",
        "  now",
    ]


def test_a_name_a_number_and_its_unit_stay_together():
    assert wrap("largest: conv1 24.5 MiB, res2a.diff 1.5 MiB, peak (467,200 bytes)", 26).splitlines() == [
        "largest: conv1 24.5 MiB,",
        "  res2a.diff 1.5 MiB, peak",
        "  (467,200 bytes)",
    ]


def test_control_characters_are_escaped_and_other_letters_stay():
    assert printable("a\x1b[2J\x9b1m\r\x07\u202eb") == r"a\x1b[2J\x9b1m\r\x07\u202eb"
    assert printable("日本 é\n\tß") == "日本 é\n\tß"
    assert wrap("net '\x1b]0;x\x07' is wrong") == r"net '\x1b]0;x\x07' is wrong"


def test_a_shape_has_its_extents_or_is_a_scalar():
    assert (shape_text((64, 3, 224)), shape_text(["N", 4]), shape_text(())) == ("64x3x224", "Nx4", "scalar")


def test_a_number_has_its_noun_in_the_right_form():
    said = [count_text(*each) for each in ((1, "blob"), (0, "class"), (1, "class"), (2000, "layer with parameters"))]
    assert said == ["1 blob", "0 classes", "1 class", "2,000 layers with parameters"]
