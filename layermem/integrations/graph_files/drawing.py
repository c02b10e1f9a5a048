"""The segments of a plan for a graph file as a graph in the DOT language: a box of values for each, in its order."""

from __future__ import annotations

from collections.abc import Sequence

from layermem.integrations.graph_files.value_graph import ValueGraph
from layermem.utils.units import format_bytes


def segments_dot(values: ValueGraph, chain: Sequence[Sequence[int]]) -> str:
    """The text of a DOT file for a chain of lower sets, of variable ids.  What crosses the end of a segment is bold."""
    lines = ["digraph segments {", "  rankdir=TB; node [shape=box, style=rounded];"]
    segment: dict[int, int] = {}
    for number, lower in enumerate(chain, 1):
        members = [variable for variable in lower if variable not in segment]
        segment |= dict.fromkeys(members, number)
        nbytes = format_bytes(sum(values.graph.variables[v].bytes for v in members))
        lines.append(f'  subgraph cluster_{number} {{ label="segment {number}, {nbytes}";')
        lines += [f'    v{v} [label="{_label(values, v)}"];' for v in members]
        lines.append("  }")
    for node, before in enumerate(values.before):
        to = values.variables[node]
        for origin in (values.variables[i] for i in before):
            style = " [style=bold]" if segment[origin] != segment[to] else ""
            lines.append(f"  v{origin} -> v{to}{style};")
    return "\n".join([*lines, "}", ""])


def _label(values: ValueGraph, variable: int) -> str:
    function = values.graph.forward[values.writer[variable]]
    name = function.type_name.replace('"', "'")
    return f"{name}\\n{variable}: {format_bytes(values.graph.variables[variable].bytes)}"
