"""Parsers of verbs: errors that say what was probably meant, and help within the columns of the terminal."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn, TypeAlias

from layermem.cli.verbosity import add_verbosity
from layermem.errors import InputError
from layermem.utils.numbers import parse_float, parse_integer
from layermem.utils.text import advice_for, columns, nearest, wrap

Verbs: TypeAlias = "argparse._SubParsersAction[VerbParser]"
VERB_WIDTH = 14
HELP = ["-h"], ["--help"]
FILE_OPTIONS = "--net", "--solver"
INSTEAD_OF_DASH = "give /dev/stdin or /dev/stdout for a standard stream, or ./- for a file of that name"


class Parser(argparse.ArgumentParser):
    """A parser that raises InputError for arguments that it cannot parse, and wraps its help.

    headings   by verb, the line of help above it
    """

    headings: Mapping[str, str] = {}

    def __init__(self, prog: str, *, description: str | None = None, epilog: str | None = None):
        super().__init__(prog, description=description, epilog=epilog, formatter_class=HelpFormatter)
        self._negative_number_matcher = re.compile(r"-\.?[0-9]")  # a value such as -5%, and no option
        self.register("type", int, parse_integer)  # the values of all options with type=int
        self.register("type", float, parse_float)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Refuse an empty value, which is mostly that of a variable of the shell without one, and a dash, which other
        programs take for a standard stream."""
        words = [] if isinstance(action, argparse._SubParsersAction) else arg_strings
        if "" in words:
            self.error(f"{_name(action)} has an empty value; give one, or leave it out")
        if "-" in words:
            self.error(f"{_name(action)} cannot be '-'; {INSTEAD_OF_DASH}")
        return super()._get_values(action, arg_strings)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            is_verb = isinstance(action, argparse._SubParsersAction)
            what = "verb" if is_verb else _name(action)
            self.error(f"unknown {what} '{value}' ({advice_for(value, action.choices)})")

    def format_help(self) -> str:
        text = super().format_help()
        for verb, heading in self.headings.items():
            text = re.sub(rf"^    {verb} ", f"\n  {heading}\n\\g<0>", text, count=1, flags=re.MULTILINE)
        return text

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print a help text; unlike argparse's, it raises the error of a full disk."""
        print(message, end="", file=file, flush=True)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see `{self.prog} --help`")


class VerbParser(Parser):
    """The parser of one verb.

    more         gives the end of its help, computed only when it is printed
    takes_words  whether the verb parses its words itself; they are in `caffe_words`
    """

    more: Callable[[], str] | None = None
    takes_words = False

    def format_help(self) -> str:
        text = super().format_help()
        return f"{text}\n{self.more()}" if self.more else text

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[argparse.Namespace, list[str]]:  # type: ignore[override]
        """Parse like the base class, but suggest the nearest option in the error for an unknown one."""
        if self.takes_words and list(args) not in HELP:
            return argparse.Namespace(**self._defaults, caffe_words=list(args)), []
        with self._nothing_required():
            _, unknown = super().parse_known_args(args, None)
        for word in unknown:
            known = [option for action in self._actions for option in action.option_strings]
            self.error(f"unknown argument '{word}'{_advice(word, known)}")
        return super().parse_known_args(args, namespace)

    @contextmanager
    def _nothing_required(self) -> Iterator[None]:
        """Parse without required options, since an unknown word says more than the option that it should have been."""
        all_of: list[Any] = [*self._actions, *self._mutually_exclusive_groups]
        required = [each for each in all_of if each.required]
        for each in required:
            each.required = False
        try:
            yield
        finally:
            for each in required:
                each.required = True


def _name(action: argparse.Action) -> str:
    """The longest name of an option, or the name that the help gives to another word."""
    return action.option_strings[-1] if action.option_strings else str(action.metavar or action.dest)


def _advice(word: str, known: list[str]) -> str:
    """The word that the user probably meant by an unknown one, in brackets."""
    if not word.startswith("-"):
        files = [f"{option} {word}" for option in FILE_OPTIONS if option in known]
        return f" (a file is given as {' or '.join(files)})" if files else ""
    if near := nearest(word.partition("=")[0], known):
        return f" (did you mean {near}?)"
    field = word.lstrip("-").partition("=")[0].replace("-", "_")
    if "--set" not in known or not is_solver_field(field):
        return ""
    own = "--iterations N, or " if field == "max_iter" else ""
    return f" (a field of the solver is given as {own}--set {field}=VALUE)"


def is_solver_field(name: str) -> bool:
    from layermem.proto.schema import SolverParameter

    return name in SolverParameter.DESCRIPTOR.fields_by_name


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help within the columns of the terminal, and never more than 100."""

    def __init__(self, prog: str):
        super().__init__(prog, width=columns())
        self._action_max_length = VERB_WIDTH  # argparse ignores the indent of verbs


def add_verb(
    verbs: Verbs,
    name: str,
    description: str,
    example: str,
    more: Callable[[], str] | None = None,
    *,
    has_parts: bool = False,
) -> VerbParser:
    """Add a parser for one verb; its help ends with `example`, verbatim, then the text of `more`.

    A verb that `has_parts` takes no options itself; its parts have --quiet and --verbose.
    """
    parser = verbs.add_parser(
        name,
        help=description,
        description=wrap(f"{description[0].upper()}{description[1:]}.").replace("\n  ", "\n"),
        epilog=f"example:\n{example}",
    )
    parser.more = more
    if not has_parts:
        add_verbosity(parser)
    return parser
