"""Converts docstrings of layermem to Markdown: aligned lists of names become lists, drawings stay as they are.

strategy   by default `auto` under a budget, else `liveness`
budget     bytes, "2GiB" or "50%";                                 ->   - `budget`: bytes, "2GiB" or "50%"; ...
           if nothing fits, the answer is not `feasible`
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

ENTRY = re.compile(r"^(\*{0,2}[\w.`]+(?:[,/] ?[\w.`]+)*)(?:  +| {2,}| +-- +)(\S.*)$")


class AlignedLists(Extension):
    """An extension that rewrites each docstring once, after it is read."""

    def on_instance(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)


def to_markdown(text: str) -> str:
    """`text` with each aligned list as a Markdown list; indented lines stay blocks of code."""
    lines: list[str] = []
    in_list = False
    for line in text.splitlines():
        entry = ENTRY.match(line)
        if entry:
            if not in_list and lines and lines[-1]:
                lines.append("")
            lines.append(f"- `{entry[1].strip('`')}`: {literal(entry[2])}")
            in_list = True
        elif in_list and line.startswith("  ") and line.strip():
            lines.append("  " + literal(line.strip()))
        else:
            if in_list and line.strip():
                lines.append("")
            in_list = False
            lines.append(line if line.startswith("    ") else literal(line))
    return "\n".join(lines)


def literal(line: str) -> str:
    """`line` with the special characters of Markdown escaped, except for code in backticks."""
    parts = line.split("`")
    return "`".join(
        re.sub(r"[\[\]*<]", r"\\\g<0>", part) if number % 2 == 0 else part for number, part in enumerate(parts)
    )
