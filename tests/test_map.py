"""The map of the house: imports point up the list of rooms, and what needs a device stays where devices are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

HOUSE = Path(__file__).parent.parent / "layermem"
NATIVE = HOUSE / "native"

# From the ground up: a room reads those before it.  Rooms of one row know nothing of each other.
ROOMS = (
    {"errors", "seeds", "verbs", "_native"},
    {"files", "units", "nets"},
    {"proto"},
    {"layers"},
    {"graph"},
    {"plan"},
    {"schedule"},
    {"compile"},
    {"planned", "runtime", "data"},
    {"comparison", "solver"},
    {"api", "measure", "report"},
    {"cli"},
    {"__init__", "__main__"},
)
FLOOR = {room: floor for floor, rooms in enumerate(ROOMS) for room in rooms}
FILES = sorted(HOUSE.rglob("*.py"))


def room_of(file: Path) -> str:
    return file.relative_to(HOUSE).parts[0].removesuffix(".py")


def modules_read(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Each module that an import statement names, with its line; `from layermem import x` names layermem.x."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"line {node.lineno}: a relative import"
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "layermem" else [node.module]
            )
            yield from ((name, node.lineno) for name in names)


def without_hints(tree: ast.Module) -> ast.Module:
    """The module without what only a type checker reads."""

    class Strip(ast.NodeTransformer):
        def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
            return node.orelse if "TYPE_CHECKING" in ast.unparse(node.test) else self.generic_visit(node)

    return Strip().visit(tree)


def rooms_read(source: str) -> Iterator[tuple[str, int]]:
    for module, line in modules_read(without_hints(ast.parse(source))):
        package, _, rest = module.partition(".")
        if package == "layermem" and rest and not rest.startswith("__version__"):
            yield rest.partition(".")[0], line


def test_every_room_is_on_the_map():
    assert {room_of(file) for file in FILES} | {"_native"} == set(FLOOR)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(HOUSE)))
def test_imports_point_up(file):
    room = room_of(file)
    for read, line in rooms_read(file.read_text()):
        assert read == room or FLOOR[read] < FLOOR[room], f"{file.name}:{line}: {room} reads {read}"


def test_an_import_downwards_would_be_seen():
    assert list(rooms_read("import numpy\ndef f():\n    from layermem.cli import main")) == [("cli", 3)]
    assert list(rooms_read("from layermem import cli, errors")) == [("cli", 1), ("errors", 1)]
    assert list(
        rooms_read("if TYPE_CHECKING:\n    from layermem import cli\nelse:\n    import layermem.plan.base")
    ) == [("plan", 4)]


def test_one_file_meets_pycuda():
    found = [
        file
        for file in FILES
        if any(name.startswith("pycuda") for name, _ in modules_read(ast.parse(file.read_text())))
    ]
    assert [str(file.relative_to(HOUSE)) for file in found] == ["runtime/cuda/driver.py"]


def test_the_readme_shows_the_rooms_in_this_order():
    text = (HOUSE.parent / "README.md").read_text()
    rows = re.findall(r"^\| ((?:`[\w/.]+`(?:, )?)+) \|", text.partition("## How it is built")[2], re.MULTILINE)
    shown = [name.removesuffix(".py") for row in rows for name in re.findall(r"`([\w.]+)/?`", row)]
    assert [room for room in shown if room in FLOOR] == sorted((r for r in shown if r in FLOOR), key=FLOOR.__getitem__)
    assert {"proto", "layers", "graph", "plan", "schedule", "compile", "runtime", "solver", "cli"} <= set(shown)


@pytest.mark.parametrize("half, other", [("planning", "cpu"), ("cpu", "planning")])
def test_native_planning_and_native_kernels_do_not_meet(half, other):
    for file in [*(NATIVE / half).rglob("*.cpp"), *(NATIVE / half).rglob("*.h")]:
        assert not re.search(rf'#include\s+"[^"]*\b{other}/', file.read_text()), file.name
