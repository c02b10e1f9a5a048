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
