"""Nets and solvers from prototxt, upgraded, checked layer by layer, and knowing their lines.

    read_net("lenet.prototxt")  ->  NetFile     message NetParameter, its layers in today's form
    read_solver("solver.prototxt")  ->  SolverFile     message SolverParameter; nets written inside it are NetFiles

Whatever is wrong is one InputError with path, line and remedy.  Nothing here looks past a single layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from layermem.errors import InputError
from layermem.proto import text as text_file
from layermem.proto.checks import layer_fault
from layermem.proto.outline import Outline
from layermem.proto.schema import NetParameter, SolverParameter
from layermem.proto.upgrade import Lines, upgrade_net, upgrade_solver

_NETS_INSIDE = ("net_param", "train_net_param", "test_net_param")  # fields of SolverParameter


@dataclass(frozen=True, eq=False)
class NetFile:
    """A net and where it was read.  Treat the message as frozen too."""

    path: str
    message: Any  # NetParameter
    lines: tuple[int | None, ...]  # for each layer the line where its block begins; None if no text holds it
    notes: tuple[str, ...] = ()  # what reading rewrote, a sentence each

    def line_of(self, layer_index: int) -> int | None:
        return self.lines[layer_index]

    def error(self, layer_index: int, what: str) -> InputError:
        """The InputError that says `what` of a layer, at its place."""
        name = self.message.layer[layer_index].name
        return InputError(what, path=self.path, line=self.lines[layer_index], layer=name)


@dataclass(frozen=True, eq=False)
class SolverFile:
    """A solver and where it was read.  Treat the message as frozen too."""

    path: str
    message: Any  # SolverParameter
    nets: dict[str, tuple[NetFile, ...]]  # nets written inside: keys net_param, train_net_param, test_net_param
    lines: dict[str, tuple[int, ...]]  # of each field that the text gives, once for each time
    notes: tuple[str, ...] = ()  # what reading rewrote, a sentence each

    def error(self, field: str, what: str, index: int = 0) -> InputError:
        """The InputError that says `what`, at the line of a field, or at none if the text does not give it."""
        lines = self.lines.get(field, ())
        return InputError(what, path=self.path, line=lines[index] if index < len(lines) else None)


def read_net(path: str | PathLike[str]) -> NetFile:
    """The net in a prototxt file, in today's form."""
    raw = text_file.read_bytes(path, what="prototxt net", limit=text_file.TEXT_LIMIT)
    return read_net_text(text_file.decode(raw, str(path), what="prototxt net"), str(path))


def read_net_text(text: str, path: str = "<text>") -> NetFile:
    """The net in `text`; errors name `path`."""
    message = NetParameter()
    layout = text_file.parse(text, message, path)
    lines: Lines = [*layout.lines("layers" if message.layers else "layer")]
    return _net_file(message, lines, _first(layout.lines("input")), path)


def read_solver(path: str | PathLike[str]) -> SolverFile:
    """The solver in a prototxt file, in today's form."""
    raw = text_file.read_bytes(path, what="prototxt solver", limit=text_file.TEXT_LIMIT)
    return read_solver_text(text_file.decode(raw, str(path), what="prototxt solver"), str(path))


def read_solver_text(text: str, path: str = "<text>") -> SolverFile:
    """The solver in `text`; errors name `path`, and snapshots are named after it if nothing else names them."""
    message = SolverParameter()
    layout = text_file.parse(text, message, path)
    given = message.ListFields()
    try:
        notes = upgrade_solver(message, path)
    except InputError as error:
        raise error.at(path=path, line=_first(layout.lines("solver_type"))) from None
    nets = {field: tuple(_nets_inside(message, field, layout, path)) for field in _NETS_INSIDE}
    lines = {field.name: tuple(layout.lines(field.name)) for field, _ in given}
    return SolverFile(path, message, nets, lines, tuple(notes))


def resolve_path(name: str, beside: str | PathLike[str]) -> Path:
    """An input file named inside the file `beside`: from the working directory, as Caffe does, else from beside it."""
    near = Path(beside) if Path(beside).is_dir() else Path(beside).parent
    candidates = [Path(name), near / name]
    for candidate in candidates:
        if name and candidate.exists():
            return candidate
    if not name or Path(name).is_absolute() or near.resolve() == Path.cwd():
        raise InputError(f"there is no '{name}'")
    raise InputError(f"there is no '{name}', neither in the working directory nor in {near}")


def _net_file(message: Any, lines: Lines, input_line: int | None, path: str) -> NetFile:
    try:
        lines, notes = upgrade_net(message, lines, input_line)
    except InputError as error:
        raise error.at(path=path) from None
    net = NetFile(path, message, tuple(lines), tuple(notes))
    if not message.layer:
        raise InputError("the net has no layers", path=path)
    for index, layer in enumerate(message.layer):
        if fault := layer_fault(layer):
            raise net.error(index, fault)
    return net


def _nets_inside(solver: Any, field: str, layout: Outline, path: str) -> list[NetFile]:
    """The nets of one field of a solver, each with the lines of its own layers."""
    given = getattr(solver, field)
    messages = ([given] if solver.HasField(field) else []) if field != "test_net_param" else list(given)
    begins = [i for i, f in enumerate(layout.fields) if f.path == (field,)]
    nets = []
    for message, start, stop in zip(messages, begins, [*begins[1:], None]):
        part = Outline(layout.fields[start:stop], ())
        lines: Lines = [*part.lines(field, "layers" if message.layers else "layer")]
        nets.append(_net_file(message, lines, _first(part.lines(field, "input")), path))
    return nets


def _first(lines: list[int]) -> int | None:
    return lines[0] if lines else None
