"""What the parsers of verbs say about words that they do not know."""

import argparse

import pytest

from layermem.cli.parser import Parser, VerbParser, is_solver_field
from layermem.errors import InputError


def test_arguments_that_do_not_parse_are_input_errors_that_point_to_the_help():
    with pytest.raises(InputError, match=r"required: x; see `tool --help`"):
        parser = Parser("tool")
        parser.add_argument("x")
        parser.parse_args([])


@pytest.mark.parametrize(
    ("word", "advice"),
    [
        ("--nett", "did you mean --net?"),
        ("a.prototxt", "a file is given as --net a.prototxt"),
        ("--base-lr=1", "a field of the solver is given as --set base_lr=VALUE"),
        ("--max_iter", "is given as --iterations N, or --set max_iter=VALUE"),
        ("--nothing-like-it", "unknown argument '--nothing-like-it'; see"),
    ],
)
def test_an_unknown_word_is_answered_with_what_it_probably_stands_for(word, advice):
    verb = argparse.ArgumentParser().add_subparsers(parser_class=VerbParser).add_parser("verb")
    verb.add_argument("--net", required=True)
    verb.add_argument("--set", action="append")
    with pytest.raises(InputError) as error:
        verb.parse_args([word])
    assert advice in str(error.value)


def test_fields_of_solvers_are_known_by_name():
    assert is_solver_field("base_lr") and not is_solver_field("base_rl")


def parser_with(*options):
    verb = argparse.ArgumentParser().add_subparsers(parser_class=VerbParser).add_parser("verb")
    group = verb.add_argument_group("group")
    for option, values in options:
        group.add_argument(option, **values)
    return verb


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--log", ""], "--log"),
        (["--log="], "--log"),
        (["-o", ""], "--output"),
        (["--set", "a=1", "--set", ""], "--set"),
        (["--find", "a", ""], "--find"),
        ([""], "NAME"),
    ],
)
def test_an_empty_value_of_any_option_is_refused(words, what):
    verb = parser_with(("--log", {}), ("--set", {"action": "append"}), ("--find", {"nargs": "+"}))
    verb.add_argument("-o", "--output")
    verb.add_argument("name", metavar="NAME", nargs="?")
    with pytest.raises(InputError, match=f"^{what} has an empty value; give one, or leave it out; see"):
        verb.parse_args(words)
    assert verb.parse_args(["--log", "a b", "--set", "a="]).set == ["a="]


@pytest.mark.parametrize(
    ("words", "what"),
    [(["--save", "-"], "--save"), (["-o-"], "--output"), (["--weights", "a", "-"], "--weights"), (["-"], "NAME")],
)
def test_a_dash_is_no_file_and_the_names_of_standard_streams_are_said(words, what):
    verb = parser_with(("--save", {}), ("--weights", {"nargs": "+"}))
    verb.add_argument("-o", "--output")
    verb.add_argument("name", metavar="NAME", nargs="?")
    says = (
        rf"^{what} cannot be '-'; give /dev/stdin or /dev/stdout for a standard stream, or \./- for a file of that name"
    )
    with pytest.raises(InputError, match=says):
        verb.parse_args(words)
    assert verb.parse_args(["./-", "--save", "./-"]).name == "./-"


@pytest.mark.parametrize("text", ["\u0663", "1_0", "x"])
def test_values_of_options_that_take_numbers_are_ascii_digits(text):
    verb = parser_with(("--batch", {"type": int}), ("--scale", {"type": float}))
    for option, kind in (("--batch", "int"), ("--scale", "float")):
        with pytest.raises(InputError, match=f"{option}: invalid {kind} value: '{text}'"):
            verb.parse_args([option, text])
    found = verb.parse_args(["--batch", "-3", "--scale", "1e-3"])
    assert (found.batch, found.scale) == (-3, 1e-3)
