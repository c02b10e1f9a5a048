"""Reads, writes and checks computational graphs in the text form of Kusumoto et al. (NeurIPS 2019).

2 2                 2 variables, 2 functions: the forward ones, then their backwards in the same order
0 4096 _            id, bytes, name: `_` is a value of the net, `/path/W` a parameter, a number a network input
1 16384 /conv/W
forward             a function: `forward` or `backward`
2 1                 number of inputs, number of outputs
...                 inputs `id kind`; the kind is `_` in a forward; in a backward it names what is read of the
                    variable: its `gradient`, or its data, as an `input` or `output` of the forward
0                   outputs `id`; a backward adds to the gradients of these
Convolution2DFunction
{"sx": 1, ...}      one line of JSON: attributes.  `seconds`, in all functions or in none, is the duration of one
                    run: an addition to the authors' form, in which attributes depend on the framework

source  github.com/pfnet-research/recompute, scripts/dump.py (format); no code is taken from it
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from layermem.errors import InputError
from layermem.utils.files import write_atomically
from layermem.utils.input_files import read_lines
from layermem.utils.units import LIMIT_BYTES, format_bytes

CONVOLUTION_COST, OTHER_COST = 10, 1
SECONDS, MAX_SECONDS = "seconds", 1e4
AUTHORS, NANOSECONDS = "authors", "ns"  # units of costs: CONVOLUTION_COST and OTHER_COST, or `seconds`
OP_COSTS = ("file", AUTHORS)
READ_KINDS = ("gradient", "input", "output")
MAX_DIGITS, MAX_BYTES_DIGITS = 9, 19  # digits of a count or an id, and of bytes


@dataclass(frozen=True)
class Variable:
    """One array of the training program: `bytes` of data, and a gradient of the same size."""

    bytes: int
    name: str

    @property
    def is_value(self) -> bool:
        """Whether the net itself computes the variable; parameters and network inputs are not values."""
        return self.name == "_"


@dataclass(frozen=True)
class FileFunction:
    """One op.  `reads` pairs a variable with the kind of read; `writes` are variables, or their gradients."""

    kind: str  # forward or backward
    type_name: str  # Chainer's class name, such as Convolution2DFunction
    reads: tuple[tuple[int, str], ...]
    writes: tuple[int, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    line: int | None = None

    @property
    def cost(self) -> int:
        """The authors' cost of one run: 10 if the type begins with Conv, else 1 (so a deconvolution counts 1)."""
        return CONVOLUTION_COST if self.type_name.startswith("Conv") else OTHER_COST

    @property
    def seconds(self) -> float | None:
        """The seconds of one run, if the file gives them."""
        return self.attributes.get(SECONDS)


@dataclass(frozen=True)
class GraphFile:
    """The variables, the forward functions, and the backward of each, in file order."""

    variables: tuple[Variable, ...]
    forward: tuple[FileFunction, ...]
    backward: tuple[FileFunction, ...]
    path: str | None = None

    def costs(self, op_costs: str = "file") -> tuple[str, list[int]]:
        """The unit of costs, and the cost of one run of each forward function: integers, so that sums are exact.

        By "file" they are nanoseconds, at least one, if the file gives seconds; otherwise the costs of the authors.
        """
        if op_costs not in OP_COSTS:
            raise InputError(f"unknown op costs '{op_costs}' (choose from {', '.join(OP_COSTS)})")
        seconds = [function.seconds for function in self.forward]
        if op_costs == AUTHORS or None in seconds:
            return AUTHORS, [function.cost for function in self.forward]
        return NANOSECONDS, [max(1, round(1e9 * each)) for each in seconds if each is not None]


class _Lines:
    """The lines of a file, one at a time, with their numbers for errors."""

    def __init__(self, text: str, path: str | None):
        self.lines, self.path, self.number = text.splitlines(), path, 0

    def error(self, what: str) -> InputError:
        return InputError(what, path=self.path, line=self.number)

    def next(self, wanted: str) -> str:
        self.number += 1
        if self.number > len(self.lines):
            raise self.error(f"the file ends where {wanted} should stand; it is cut short")
        return self.lines[self.number - 1].strip()

    def integers(self, count: int, wanted: str) -> list[int]:
        words = self.next(wanted).split()
        if len(words) != count or not all(map(_is_number, words)):
            raise self.error(f"'{_short(words)}' is not {wanted}")
        return [int(word) for word in words]


def _is_number(word: str, digits: int = MAX_DIGITS) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= digits


def _short(words: list[str]) -> str:
    text = " ".join(words)
    return text if len(text) <= 60 else f"{text[:57]}..."


def parse_graph(text: str, path: str | None = None) -> GraphFile:
    """Parse the graph that `text` describes; InputError with path and line if it does not follow the form."""
    lines = _Lines(text, path)
    variable_count, function_count = lines.integers(2, "'VARIABLES FUNCTIONS', two numbers")
    if function_count % 2:
        raise lines.error(f"{function_count} functions: their number must be even, each forward has its backward")
    variables = tuple(_variable(lines, index) for index in range(variable_count))
    if sum(variable.bytes for variable in variables) >= LIMIT_BYTES:
        raise lines.error(f"the variables take more than {format_bytes(LIMIT_BYTES)}, which no machine has")
    functions = [_function(lines, variables) for _ in range(function_count)]
    while lines.number < len(lines.lines):
        if lines.next("nothing"):
            raise lines.error(f"text after the last of {function_count} functions")
    half = function_count // 2
    graph = GraphFile(variables, tuple(functions[:half]), tuple(functions[half:]), path)
    _check_halves(graph)
    _check_seconds(graph)
    return graph


def _variable(lines: _Lines, index: int) -> Variable:
    words = lines.next("a variable 'ID BYTES NAME'").split()
    if len(words) != 3 or not (_is_number(words[0]) and _is_number(words[1], MAX_BYTES_DIGITS)):
        raise lines.error(f"'{_short(words)}' is not a variable 'ID BYTES NAME'")
    if int(words[0]) != index:
        raise lines.error(f"variable {words[0]} where {index} should stand; ids count from 0 without gaps")
    return Variable(int(words[1]), words[2])


def _function(lines: _Lines, variables: tuple[Variable, ...]) -> FileFunction:
    kind = lines.next("'forward' or 'backward'")
    start = lines.number
    if kind not in ("forward", "backward"):
        raise lines.error(f"'{kind}' where 'forward' or 'backward' should stand")
    read_count, write_count = lines.integers(2, "'INPUTS OUTPUTS', two numbers")
    kinds = ("_",) if kind == "forward" else READ_KINDS
    reads = tuple(_read(lines, kinds, len(variables)) for _ in range(read_count))
    writes = tuple(
        _known(lines, lines.integers(1, "the id of an output")[0], len(variables)) for _ in range(write_count)
    )
    type_name = lines.next("the type of the function")
    attributes = lines.next("the attributes of the function, one line of JSON")
    try:
        parsed = json.loads(attributes)
    except (ValueError, RecursionError) as error:
        raise lines.error(f"the attributes of {type_name} are not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise lines.error(f"the attributes of {type_name} are not a JSON object")
    seconds = parsed.get(SECONDS, 0)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= MAX_SECONDS:
        given = _short([json.dumps(seconds)])
        raise lines.error(f"{type_name} gives {given} as its seconds; give a number from 0 to {MAX_SECONDS:,.0f}")
    return FileFunction(kind, type_name, reads, writes, parsed, start)


def _read(lines: _Lines, kinds: tuple[str, ...], count: int) -> tuple[int, str]:
    words = lines.next("an input 'ID KIND'").split()
    if len(words) != 2 or not _is_number(words[0]) or words[1] not in kinds:
        raise lines.error(f"'{_short(words)}' is not an input 'ID KIND' with a kind of {', '.join(kinds)}")
    return _known(lines, int(words[0]), count), words[1]


def _known(lines: _Lines, variable: int, count: int) -> int:
    if variable >= count:
        raise lines.error(f"there is no variable {variable}; the file lists {count}, from 0")
    return variable


def _check_halves(graph: GraphFile) -> None:
    """Check that the first half runs forward, the second is its backward, and every value has one writer."""
    writer: dict[int, FileFunction] = {}
    for kind, half in (("forward", graph.forward), ("backward", graph.backward)):
        for function in half:
            if function.kind != kind:
                raise InputError(
                    f"a {function.kind} function in the {kind} half; all forwards come first, then all backwards",
                    path=graph.path,
                    line=function.line,
                )
    for forward, backward in zip(graph.forward, graph.backward):
        if forward.type_name != backward.type_name:
            raise InputError(
                f"the backward of {backward.type_name} stands where that of {forward.type_name} should; "
                "backwards follow the order of the forwards",
                path=graph.path,
                line=backward.line,
            )
        for variable in forward.writes:
            if variable in writer:
                raise InputError(
                    f"variable {variable} has two writers; give the second another one",
                    path=graph.path,
                    line=forward.line,
                )
            writer[variable] = forward
    for forward in graph.forward:
        for variable, _ in forward.reads:
            if graph.variables[variable].is_value and variable not in writer:
                what = f"nothing writes variable {variable}, which this function reads; add its writer before it"
                raise InputError(what, path=graph.path, line=forward.line)


def _check_seconds(graph: GraphFile) -> None:
    """Check that all functions give seconds, or none."""
    functions = (*graph.forward, *graph.backward)
    missing = [function for function in functions if function.seconds is None]
    if missing and len(missing) < len(functions):
        what = f"this function gives no seconds, and {len(functions) - len(missing)} others do"
        raise InputError(f"{what}; give those of all, or of none", path=graph.path, line=missing[0].line)


def read_graph(path: str | Path) -> GraphFile:
    """Read the graph in the file at `path`."""
    return parse_graph("\n".join(read_lines(path, what="graph file")), str(path))


def format_graph(graph: GraphFile) -> str:
    """Format `graph` as text that parse_graph() reads back."""
    lines = [f"{len(graph.variables)} {len(graph.forward) + len(graph.backward)}"]
    lines += [f"{index} {variable.bytes} {variable.name}" for index, variable in enumerate(graph.variables)]
    for function in (*graph.forward, *graph.backward):
        lines += [function.kind, f"{len(function.reads)} {len(function.writes)}"]
        lines += [f"{variable} {kind}" for variable, kind in function.reads]
        lines += [str(variable) for variable in function.writes]
        lines += [function.type_name, json.dumps(function.attributes)]
    return "\n".join(lines) + "\n"


def write_graph(graph: GraphFile, path: str | Path) -> None:
    """Write `graph` to `path`; on failure an existing file is unchanged."""
    write_atomically(path, format_graph(graph).encode())
