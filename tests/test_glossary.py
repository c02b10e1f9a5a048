"""Retired words of docs/glossary.md are not used: in code, comments, help texts or documentation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import pytest

from layermem.cli.main import make_parser

ROOT = Path(__file__).parent.parent
GLOSSARY = ROOT / "docs" / "glossary.md"
FOLDERS = ("layermem", "cuda", "tests", "tools", "docs", "prototxt")
SUFFIXES = {".py", ".pyi", ".cpp", ".h", ".hpp", ".cu", ".cuh", ".md", ".toml", ".sched"}
# Files that are about old names.
ABOUT_OLD_NAMES = ("docs/glossary.md", "tests/test_glossary.py", "CHANGELOG.md")


class Allowed(NamedTuple):
    """Permitted uses of a retired word: in files like `path`, where `pattern` matches the line."""

    word: str
    path: str
    pattern: str
    reason: str


ALLOWED = (
    Allowed("asks", "*", r"\basks? for\b", "a prototxt file requests a value"),
    Allowed("home", "*", r"_HOME\b|\bHOME\b|Path\.home\(\)", "names of the system and of CUDA"),
    Allowed("sweep", "*", r"\bsweep line\b", "the algorithm of that name"),
    Allowed("told", "*", r"told_apart", "English for distinguished"),
    Allowed("tells", "*", r"\btells\b.* apart\b", "English for distinguishes"),
    Allowed("trap", "tests/emulator/*", r"-trap-on-error|sigtrap|ILL\|TRAP", "names of the compiler and of a signal"),
    Allowed("card", "*", r"--card\b", "the option's name"),
    Allowed("stretch", "layermem/proto/forks.py", r'"(vertical|horizontal)_stretch_', "fields of NVCaffe"),
    Allowed("fate", "layermem/planning/plan.py", r'saved\["fates"\]', "key of plans saved by earlier versions"),
    Allowed("fate", "tests/planning/test_plan.py", r'"fates"', "the same"),
)


class RetiredWord(NamedTuple):
    word: str
    instead: str  # the term to use
    pattern: re.Pattern[str]
    exact: bool  # matches as it is written; else any case, and parts of identifiers

    def is_in(self, line: str, words: str) -> bool:
        """`words` is the line with its identifiers split into lower-case words."""
        return bool(self.pattern.search(line if self.exact else words))

    def may_be_in(self, text: str, words: str, tokens: Set[str]) -> bool:
        """True wherever is_in() is; `tokens` are the single words of `words`."""
        if self.exact:
            return self.word in text
        first, *others = re.split("[ -]", self.word)
        if not others:
            return not tokens.isdisjoint((first, f"{first}s", f"{first}es"))
        return all(each in words for each in (first, *others))


def make_word(word: str, instead: str) -> RetiredWord:
    if re.fullmatch(r"[a-z]+([ -][a-z]+)*", word):
        joined = re.sub("[ -]", lambda gap: {" ": "[-_ ]", "-": "[-_]?"}[gap[0]], word)
        return RetiredWord(word, instead, re.compile(rf"(?<![a-z]){joined}(e?s)?(?![a-z])"), False)
    return RetiredWord(word, instead, re.compile(rf"(?<![\w.]){re.escape(word)}(?!\w)"), True)


def retired_words(page: str) -> list[RetiredWord]:
    """The words in the last column of each table of the glossary."""
    words = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|"):
            words += [make_word(word, cells[0].strip("`")) for word in re.findall(r"`([^`]+)`", cells[-1])]
    return words


def split_identifiers(line: str) -> str:
    """ "KSlice kSlices" -> "k_slice k_slices": camel case becomes lower-case words."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", line).lower()


def sources() -> Iterator[Path]:
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "setup.py", "pyproject.toml"))
    for folder in FOLDERS:
        yield from (file for file in sorted((ROOT / folder).rglob("*")) if file.suffix in SUFFIXES)


def suspects(text: str, words: Iterable[RetiredWord]) -> list[int]:
    """The lines, from 1, that use some of the words: most words are in no line, which takes no search to see."""
    parts = split_identifiers(text)
    tokens, found = set(re.findall("[a-z]+", parts)), set()
    for word in words:
        if word.may_be_in(text, parts, tokens):
            searched = text if word.exact else parts
            found |= {1 + searched.count("\n", 0, use.start()) for use in word.pattern.finditer(searched)}
    return sorted(found)


def hits(name: str, lines: Iterable[str], words: Iterable[RetiredWord]) -> Iterator[str]:
    """ "file:line: 'word' is retired; use ..." for each use that is not allowed."""
    words, lines = list(words), list(lines)
    exceptions = [each for each in ALLOWED if fnmatch(name, each.path)]
    for number in suspects("\n".join(lines), words):
        line = lines[number - 1]
        parts = split_identifiers(line)
        for word in words:
            if word.is_in(line, parts) and not any(
                each.word == word.word and re.search(each.pattern, line) for each in exceptions
            ):
                yield f"{name}:{number}: '{word.word}' is retired, see '{word.instead}': {line.strip()[:80]}"


WORDS = retired_words(GLOSSARY.read_text())


@pytest.mark.parametrize("folder", ["", *FOLDERS])
def test_no_file_uses_a_retired_word(folder):
    found = []
    for file in sources():
        name = file.relative_to(ROOT).as_posix()
        if name in ABOUT_OLD_NAMES or not name.startswith(folder) or (not folder and "/" in name):
            continue
        found += [*hits(name, file.read_text().splitlines(), WORDS), *hits(name, [name], WORDS)]
    assert not found, "\n".join(found)


def test_no_help_text_uses_a_retired_word():
    parser = make_parser()
    verbs = next(action.choices for action in parser._actions if isinstance(action.choices, dict))
    found = [
        hit
        for verb, each in [("", parser), *verbs.items()]
        for hit in hits(f"layermem {verb} --help", each.format_help().splitlines(), WORDS)
    ]
    assert not found, "\n".join(found)


def test_every_retired_word_is_parsed_from_the_page():
    assert len(WORDS) > 30
    assert {"scratch", "stand-in", "vector unit", "Walk", "pool.h"} <= {word.word for word in WORDS}


@pytest.mark.parametrize(
    "line",
    [
        "conv_scratch_bytes",
        "ScratchBytes",
        "two scratches",
        "a stand-in",
        "on_standin.py",
        "STANDIN_SEED",
        "set_vector_unit()",
        "class Walk:",
        '#include "cpu/pool.h"',
        "nobody reads it",
    ],
)
def test_a_retired_word_is_found(line):
    assert list(hits("x.py", [line], WORDS))


@pytest.mark.parametrize(
    "line", ["os.walk(path)", "mushroom", "stand in one batch of", "asks for a filler", "CUDA_HOME"]
)
def test_other_words_are_left_alone(line):
    assert not list(hits("x.py", [line], WORDS))


def test_every_exception_is_used():
    texts = {file.relative_to(ROOT).as_posix(): file.read_text() for file in sources()}
    for each in ALLOWED:
        assert any(fnmatch(name, each.path) and re.search(each.pattern, text) for name, text in texts.items()), (
            f"no file needs {each}"
        )
