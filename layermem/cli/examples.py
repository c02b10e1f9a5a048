"""examples: lists the nets that come with layermem, and copies one into the working folder.

A wheel has them in layermem/example_nets, a clone in prototxt/, whose README is the catalogue; some are
generated.  The prototxts name files relative to the working folder or to themselves, so a copy works anywhere.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from layermem.cli.options import add_json, print_json
from layermem.cli.parser import Verbs, add_verb
from layermem.errors import InputError
from layermem.utils.files import write_atomically
from layermem.utils.text import advice_for, printable, wrap

EXAMPLE = """\
  layermem examples
  layermem examples digits
  layermem train --solver digits/solver.prototxt --budget 50%
"""
PACKAGE = Path(__file__).resolve().parents[1]
IN_WHEEL, IN_CLONE = PACKAGE / "example_nets", PACKAGE.parent / "prototxt"
CATALOGUE = "README.md"
# Folders of examples that a clone has elsewhere.
ELSEWHERE = {"python_layers": PACKAGE.parent / "docs" / "python_layers"}
PYTHON_LAYERS = "a line fitted to a parabola; its source and its loss are Python layers"
INCLUDED, RANDOM, NOT_INCLUDED = "included", "random", "not included"
UNWANTED = ("lock.mdb", "__pycache__")


@dataclass(frozen=True)
class Example:
    """A folder of nets: its description, its parameters as text, and its files, relative to the folder.

    A net of WRITTEN_ON_REQUEST has no folder.
    """

    name: str
    what: str
    parameters: str
    folder: Path | None

    @property
    def files(self) -> list[Path]:
        from layermem.nets.prototext import NetFiles

        if self.folder is None:
            return [Path(name) for name in NetFiles.names]
        every = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        return [path.relative_to(self.folder) for path in every if not set(path.parts) & set(UNWANTED)]

    def read(self) -> dict[Path, bytes]:
        """Read or generate all files."""
        from layermem.nets.catalog import net_files

        if self.folder is None:
            return {Path(name): text.encode() for name, text in net_files(self.name).texts().items()}
        return {name: (self.folder / name).read_bytes() for name in self.files}

    @property
    def data(self) -> str:
        """Whether its data set is present; `random` means that solver_dummy.prototxt runs it on random data."""
        if self.name in ELSEWHERE or any(path.suffix == ".mdb" for path in self.files):
            return INCLUDED
        return RANDOM if self._dummies() else NOT_INCLUDED

    def command(self, folder: Path) -> str:
        """The command that trains a copy in `folder` with the available data."""
        solver = self._dummies()[0] if self.data == RANDOM else Path("solver.prototxt")
        options = " --allow-python" if self.name in ELSEWHERE else ""
        return f"layermem train --solver {folder / solver}{options}"

    def _dummies(self) -> list[Path]:
        return [path for path in self.files if path.name.endswith("solver_dummy.prototxt")]


def add_verbs(verbs: Verbs) -> None:
    description = "list the nets that layermem carries, or copy some of them into the working folder"
    parser = add_verb(verbs, "examples", description, EXAMPLE)
    parser.add_argument("names", metavar="NAME", nargs="*", help="what to copy (default: list all)")
    parser.add_argument("--to", metavar="DIR", type=Path, default=Path(), help="copy to DIR/NAME (default: NAME)")
    add_json(parser)
    parser.set_defaults(run=run_examples)


def run_examples(arguments: argparse.Namespace) -> int:
    examples = read_examples()
    for name in arguments.names:
        if name not in examples:
            raise InputError(f"there is no example '{name}'; choose another ({advice_for(name, examples)})")
    if arguments.names and arguments.json:
        raise InputError("--json is of the list of examples; leave out the names, or --json")
    if arguments.names:
        for name in arguments.names:
            for line in copy(examples[name], arguments.to / name):
                print(wrap(printable(line)))
    elif arguments.json:
        rows = [{"name": e.name, "what": e.what, "parameters": e.parameters, "data": e.data} for e in examples.values()]
        print_json({"examples": rows})
    else:
        _print_list(examples)
    return 0


def _print_list(examples: dict[str, Example]) -> None:
    from layermem.report.tables import print_table

    rows = [[each.name, each.what, each.parameters, each.data] for each in examples.values()]
    print_table(["name", "what", ">parameters", "data"], rows)
    print(wrap("`layermem examples NAME` copies one here; data `random`: solver_dummy.prototxt needs no data set"))


def read_examples() -> dict[str, Example]:
    """Read all examples by name, in the order of the catalogue."""
    from layermem.nets.catalog import WRITTEN_ON_REQUEST

    root = IN_WHEEL if IN_WHEEL.is_dir() else IN_CLONE
    if not (root / CATALOGUE).is_file():
        raise InputError("this installation of layermem has no examples; install its wheel again")
    rows = _rows((root / CATALOGUE).read_text(encoding="utf-8"))
    examples = [Example(*row, None if row[0] in WRITTEN_ON_REQUEST else root / row[0]) for row in rows]
    for name, folder in ELSEWHERE.items():
        inside = root / name
        examples.append(Example(name, PYTHON_LAYERS, "3", inside if inside.is_dir() else folder))
    return {each.name: each for each in examples if each.folder is None or each.folder.is_dir()}


def _rows(catalogue: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, origin and parameters of each row of the catalogue's table."""
    for line in catalogue.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 5 and (name := re.match(r"`(\w+)`", cells[0])):
            yield name[1], cells[1], cells[3]


def copy(example: Example, target: Path) -> list[str]:
    """Copy files that are missing in `target`; InputError, before anything is written, if a file has other content."""
    contents, missing = example.read(), []
    for name, content in contents.items():
        path = target / name
        if not path.exists():
            missing.append(name)
        elif not path.is_file() or path.read_bytes() != content:
            raise InputError(f"'{path}' is not that of the example; rename it, or copy to another folder with --to DIR")
    for name in missing:
        _make_folder((target / name).parent)
        write_atomically(target / name, contents[name])
    if not missing:
        return [f"{target}: here already, unchanged", f"train it: {example.command(target)}"]
    files = f"{len(missing)} file{'s' * (len(missing) != 1)}"
    return [f"{target}: {files}; data {example.data}", f"train it: {example.command(target)}"]


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make the folder '{folder}' ({error.strerror}); choose another with --to DIR"
        ) from None
