"""The documentation is correct: its examples run and print the shown output, its quotes and links exist.

$ layermem ...     in a code block: runs, and prints the lines below ("..." stands for any lines)
pycon              a doctest
python             runs
python FILE        a quote of FILE, with "..." between parts

tests/test_guide.py runs the blocks "console", and those with a title.
"""

from __future__ import annotations

import doctest
import fnmatch
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

import layermem
from layermem.cli.main import main
from tests.test_map import FILES, imported_packages, package_of

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("layermem/**/README.md")])
NAMES = ("cuda", "prototxt", "tests", "tests/emulator")
PAGES += [ROOT / name / "README.md" for name in NAMES]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PREFIXES = ("layermem", "")  # a path in backticks is relative to one of these


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    found = re.finditer(r"^```(.*)\n((?:(?!```).*\n)*)```$", text, re.MULTILINE)
    return [Block(page, text.count("\n", 0, each.start()) + 1, each[1].strip(), each[2]) for each in found]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def blocks(language: str) -> list[Block]:
    """The blocks of pages for users, which stand on their own."""
    return [
        block for block in BLOCKS if block.language == language and ROOT in (block.page.parent, block.page.parents[1])
    ]


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")


COMMANDS = [block for block in blocks("") if block.text.startswith("$ layermem")]


@pytest.mark.parametrize("block", COMMANDS, ids=str)
def test_a_command_prints_what_is_shown(block, capsys):
    command, _, shown = block.text.partition("\n")
    assert main(shlex.split(command)[2:]) == 0
    printed = capsys.readouterr().out
    assert doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS), printed


@pytest.mark.parametrize("page", sorted({block.page for block in blocks("pycon")}), ids=lambda page: page.name)
def test_a_session_prints_what_is_shown(page):
    session = "\n".join(block.text for block in blocks("pycon") if block.page == page)
    test = doctest.DocTestParser().get_doctest(session, {}, page.name, str(page), 0)
    report: list[str] = []
    doctest.DocTestRunner(verbose=False, optionflags=FLAGS).run(test, out=report.append)
    assert test.examples and not report, "".join(report)


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_a_program_runs(block):
    exec(compile(block.text, str(block), "exec"), {})


@pytest.mark.parametrize("block", [block for block in BLOCKS if re.match("python (?!title=)", block.language)], ids=str)
def test_a_quote_is_in_its_file(block):
    source = (ROOT / block.language.split()[1]).read_text()
    for part in re.split(r"^ *\.\.\.\n", block.text, flags=re.MULTILINE):
        assert part in source, part


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "reliability.md"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_paths_exist(page):
    """Words in backticks that look like a path of the repository, such as `schedule/lower.py` or `tests/nets.py`."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for tool in re.findall(r"\btools/\w+\.py", page.read_text()):
        assert (ROOT / tool).exists(), tool
    for path in re.findall(r"`([\w./]+/[\w.]+\.(?:py|cpp|h|cu|cuh|md|tsv|proto|prototxt))`", prose):
        places = [page.parent / path, *(ROOT / prefix / path for prefix in PREFIXES)]
        assert "FAMILY" in path or any(place.exists() for place in places), path


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "glossary.md"], ids=lambda page: page.name)
def test_commands_of_make_exist(page):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z]+)(?:`|  )", page.read_text(), re.MULTILINE)) <= targets


def test_tests_that_are_named_exist():
    page = (ROOT / "docs/reliability.md").read_text()
    named = re.findall(r"`(\S+\.py)::(\w+)`", page)
    assert len(named) > 50
    for file, name in named:
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(), (file, name)


def test_the_import_map_is_that_of_the_code():
    found: dict[str, set[str]] = {}
    for file in FILES:
        found.setdefault(package_of(file), set()).update(name for name, _ in imported_packages(file.read_text()))
    everywhere = {"errors", "utils", "_native"}
    text = (ROOT / "docs" / "architecture.md").read_text().partition("## Imports")[2].partition("## ")[0]
    shown = {}
    for line in re.findall(r"^\| `.*$", text, re.MULTILINE):
        package, *imported = re.findall(r"`(\w+)`", line)
        shown[package] = set(imported)
    assert shown == {name: found[name] - everywhere - {name} for name in shown}
    assert set(found) - set(shown) == {"errors", "utils", "__init__", "__main__"}


PACKAGES = [file.parent for file in sorted((ROOT / "layermem").rglob("__init__.py"))] + [ROOT / "tools"]
PARTS = {"checks", "driver", "kernel_images", "products", "support"}  # of backends/cuda, whose README describes them
OF_FAMILIES = [
    ROOT / "layermem" / name for name in ("ops", "layers", *(f"backends/{x}" for x in ("reference", "cpu", "cuda")))
]


def modules_named(package: Path, pattern: str) -> set[str]:
    """The modules of a word in a README; FAMILY.py stands for those that another package of families has too."""
    modules = {file.name for file in package.glob("*.py")} - {"__init__.py", "__main__.py"}
    if pattern == "FAMILY.py":
        return modules & {file.name for other in OF_FAMILIES if other != package for file in other.glob("*.py")}
    return {*fnmatch.filter(modules, pattern)}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.relative_to(ROOT)))
def test_a_package_has_a_readme_that_names_every_module_and_no_other(package):
    if package.name in PARTS:
        return
    text = (package / "README.md").read_text()
    assert re.search(r"\bStart\s+with\b", text)
    listed = set(re.findall(r"(?<![\w/])[\w*]+\.py\b", "\n".join(re.findall(r"^    .*$", text, re.MULTILINE))))
    named = [modules_named(package, pattern) for pattern in listed]
    assert all(named) and set().union(*named) == modules_named(package, "*.py")


def test_the_tree_of_the_readme_has_every_package():
    (tree,) = re.findall(r"^layermem/ .*?^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    packages = {file.parent.name for file in (ROOT / "layermem").glob("*/__init__.py")} | {"native"}
    assert packages <= {*re.findall(r"\w+", tree)}


def test_the_citation_has_the_version_of_the_package():
    assert f"\nversion: {layermem.__version__}\n" in (ROOT / "CITATION.cff").read_text()
