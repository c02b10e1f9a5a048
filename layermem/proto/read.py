"""Reads nets and solvers from prototxt, upgrades them, checks every layer, and keeps line numbers.

    read_net("lenet.prototxt")  ->  NetFile     message NetParameter, its layers in the current format
    read_solver("solver.prototxt")  ->  SolverFile     message SolverParameter; nets inside it are NetFiles

Every error is an InputError with path, line and remedy.  Relations between layers are checked in graph/.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from os import PathLike
from pathlib import Path
from types import MappingProxyType

from layermem.errors import InputError
from layermem.proto import text as text_file
from layermem.proto.checks import layer_fault, path_faults
from layermem.proto.names import name_nameless
from layermem.proto.outline import Outline, Unread
from layermem.proto.remedy import expected_value
from layermem.proto.schema import Message, NetParameter, SolverParameter
from layermem.proto.upgrade import Lines, upgrade_net, upgrade_solver
from layermem.utils.files import check_path
from layermem.utils.input_files import TEXT_LIMIT_BYTES, read_bytes
from layermem.utils.open_file import Files
from layermem.utils.similar import did_you_mean
from layermem.utils.steps import report_step
from layermem.utils.system_faults import remedy_of

_WORD = re.compile(r"[^\s\"'#{}<>\[\]:;,]+")  # a value that is no string and no block
_NESTED_NETS = ("net_param", "train_net_param", "test_net_param")  # fields of SolverParameter


@dataclass(frozen=True, eq=False)
class NetFile:
    """A net and its location.  The message must not be modified."""

    path: str
    message: Message  # NetParameter
    lines: tuple[int | None, ...]  # the first line of each layer; None for layers that are not in the text
    notes: tuple[str, ...] = ()  # upgrades that were made, a sentence each
    nameless: frozenset[str] = frozenset()  # names given to layers without one
    ignored: tuple[str, ...] = ()  # a sentence for each field of a fork that changes nothing
    files: Files = dataclass_field(default_factory=Files)  # open files that the net names
    unread: Mapping[int, tuple[Unread, ...]] = dataclass_field(default_factory=dict)  # what was set aside, by layer

    def check_read(self) -> None:
        """InputError for what was set aside."""
        for found in self.unread.values():
            raise found[0].error

    def line_of(self, layer_index: int) -> int | None:
        return self.lines[layer_index]

    def error(self, layer_index: int, what: str) -> InputError:
        """An InputError at the line of a layer."""
        name = self.message.layer[layer_index].name
        return InputError(what, path=self.path, line=self.lines[layer_index], layer=name)


@dataclass(frozen=True, eq=False)
class SolverFile:
    """A solver and its location.  The message must not be modified."""

    path: str
    message: Message  # SolverParameter
    nets: dict[str, tuple[NetFile, ...]]  # nets inside the solver, by field (_NESTED_NETS)
    lines: dict[str, tuple[int, ...]]  # lines of each field in the text, one per occurrence
    notes: tuple[str, ...] = ()  # upgrades that were made, a sentence each
    files: Files = dataclass_field(default_factory=Files)  # open files that the solver and its nets name
    options: dict[str, str] = dataclass_field(default_factory=dict)  # by field, the option that set it instead

    def error(self, field: str, what: str, index: int = 0) -> InputError:
        """An InputError at the option that set a field, or at its line, or without a line if neither gives it."""
        if field in self.options:
            return InputError(what, path=self.options[field])
        lines = self.lines.get(field, ())
        return InputError(what, path=self.path, line=lines[index] if index < len(lines) else None)


def read_net(path: str | PathLike[str], files: Files | None = None) -> NetFile:
    """Read the net in a prototxt file and upgrade it to the current format.

    files   the files of the solver that names it
    """
    files = files or Files()
    raw = files.read_bytes(path, what="prototxt net", limit=TEXT_LIMIT_BYTES)
    net = replace(read_net_text(text_file.decode(raw, str(path), what="prototxt net"), str(path)), files=files)
    report_step("read %s: %d layers, of all phases", path, len(net.message.layer))
    return net


def read_net_text(text: str, path: str = "<text>") -> NetFile:
    """Read the net in `text`; errors name `path`."""
    message = NetParameter()
    layout = text_file.parse(text, message, path)
    lines: Lines = [*layout.lines("layers" if message.layers else "layer")]
    return replace(
        _net_file(message, lines, _first(layout.lines("input")), path, layout.unread_of()), ignored=layout.ignored
    )


def net_of_message(message: Message, path: str = "<message>", lines: Sequence[int | None] = ()) -> NetFile:
    """Return a copy of a NetParameter in the current format; errors name `path`, and the line of each layer."""
    copied = NetParameter()
    copied.CopyFrom(message)
    known: Lines = list(lines) or [None] * len(copied.layers or copied.layer)
    return _net_file(copied, known, None, path)


def read_solver(path: str | PathLike[str], changes: Sequence[str] = ()) -> SolverFile:
    """Read the solver in a prototxt file, in the current format, with the fields of `changes`: "base_lr=0.001"."""
    check_path(path, "prototxt solver")
    raw = read_bytes(path, what="prototxt solver", limit=TEXT_LIMIT_BYTES)
    solver = read_solver_text(text_file.decode(raw, str(path), what="prototxt solver"), str(path), changes)
    report_step("read %s: a solver", path)
    return solver


def read_solver_text(text: str, path: str = "<text>", changes: Sequence[str] = ()) -> SolverFile:
    """Read the solver in `text`; errors name `path`, which is also the default name of snapshots."""
    message = SolverParameter()
    layout = text_file.parse(text, message, path)
    options = {_change(message, change): f"--set {change}" for change in changes}
    lines = {field.name: tuple(layout.lines(field.name)) for field, _ in message.ListFields()}
    read = SolverFile(path, message, {}, lines, options=options)
    for field, fault in path_faults(message):
        raise read.error(field, fault)
    try:
        notes = upgrade_solver(message, path)
    except InputError as error:
        raise read.error("solver_type", error.what) from None
    nets = {
        field: tuple(replace(net, files=read.files) for net in _nested_nets(message, field, layout, path))
        for field in _NESTED_NETS
    }
    return replace(read, nets=nets, notes=(*notes, *layout.ignored))


def _change(solver: Message, change: str) -> str:
    """Replace one field of a solver by its text, such as "base_lr=0.001" or "stepvalue=100,200"; return its name."""
    name, equals, text = (part.strip() for part in change.partition("="))
    fields = solver.DESCRIPTOR.fields_by_name
    if not equals or name not in fields or fields[name].message_type is not None:
        known = [each.name for each in fields.values() if each.message_type is None]
        remedy = ("" if name in known else did_you_mean(name, known)) or "write it as base_lr=0.001"
        raise InputError(f"'{change}' sets no field of a solver; {remedy}")
    field = fields[name]
    solver.ClearField(name)
    for value in text.split(",") if field.is_repeated else [text]:
        try:
            solver.MergeFrom(_with_field(field, value.strip()))
        except (InputError, ValueError):
            takes = "UTF-8 text" if field.type == field.TYPE_STRING else expected_value(field)
            raise InputError(f"'{change}' does not set {name}; it takes {takes}") from None
    return str(name)


def _with_field(field: Message, value: str) -> Message:
    """Return a solver with this value of a field alone; InputError or ValueError for a wrong value."""
    if field.type == field.TYPE_STRING:
        text = value.strip('"')
        return SolverParameter(**{field.name: [text] if field.is_repeated else text})
    if not _WORD.fullmatch(value):
        raise ValueError(f"'{value}' is not one value")
    solver = SolverParameter()
    text_file.parse(f"{field.name}: {value}", solver, "")
    return solver


def resolve_path(name: str, beside: str | PathLike[str]) -> Path:
    """Find an input file that the file `beside` names, relative to the working directory as in Caffe, or to that
    file."""
    near = Path(beside) if os.path.isdir(beside) else Path(beside).parent
    candidates = [Path(name), near / name]
    for candidate in candidates if name else ():
        try:
            os.stat(candidate)
        except PermissionError as error:
            what = f"cannot reach '{candidate}': {error.strerror}; {remedy_of(error, 'give another path')}"
            raise InputError(what) from None
        except (OSError, ValueError):
            continue
        return candidate
    if not name or Path(name).is_absolute() or near.resolve() == Path.cwd():
        raise InputError(f"there is no '{name}'")
    raise InputError(f"there is no '{name}' in the working directory or in {near}")


def _net_file(
    message: Message,
    lines: Lines,
    input_line: int | None,
    path: str,
    unread: Mapping[int, tuple[Unread, ...]] = MappingProxyType({}),
) -> NetFile:
    before = len(lines)
    try:
        lines, notes = upgrade_net(message, lines, input_line)
    except InputError as error:
        raise error.at(path=path) from None
    unread = {index + len(lines) - before: found for index, found in unread.items()}  # behind a layer of inputs
    for index, found in unread.items():
        message.layer[index].type = next((each.type for each in found if each.type), message.layer[index].type)
    nameless = frozenset(name_nameless(message))
    net = NetFile(path, message, tuple(lines), tuple(notes), nameless, unread=unread)
    if not message.layer:
        raise InputError("the net has no layers; add at least one 'layer' block", path=path)
    for index, layer in enumerate(message.layer):
        if fault := layer_fault(layer):
            raise net.error(index, fault)
    return net


def _nested_nets(solver: Message, field: str, layout: Outline, path: str) -> list[NetFile]:
    """The nets in one field of a solver, with the lines of their layers."""
    given = getattr(solver, field)
    messages = ([given] if solver.HasField(field) else []) if field != "test_net_param" else list(given)
    begins = [i for i, f in enumerate(layout.fields) if f.path == (field,)]
    nets = []
    for i, (message, start, stop) in enumerate(zip(messages, begins, [*begins[1:], None])):
        part = Outline(layout.fields[start:stop], ())
        lines: Lines = [*part.lines(field, "layers" if message.layers else "layer")]
        unread = layout.unread_of((field, i))
        nets.append(_net_file(message, lines, _first(part.lines(field, "input")), path, unread))
    return nets


def _first(lines: list[int]) -> int | None:
    return lines[0] if lines else None
