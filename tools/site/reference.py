"""The page of the Python reference: which names are public is read from the package, what they are from docstrings."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType

HEAD = """# Python reference

The public names of `layermem`. Sizes are bytes; shapes are N, C, H, W.
"""
GROUPS = (
    ("Nets and training", lambda value: inspect.isclass(value) and not issubclass(value, BaseException)),
    ("Functions", lambda value: inspect.isroutine(value)),
    ("Errors", lambda value: inspect.isclass(value) and issubclass(value, BaseException)),
    ("Modules", inspect.ismodule),
)


def page() -> str:
    """Markdown with one mkdocstrings block for each name in `layermem.__all__`."""
    package = importlib.import_module("layermem")
    values = {name: getattr(package, name) for name in package.__all__}
    text, listed = HEAD, set()
    for title, belongs in GROUPS:
        names = sorted(name for name, value in values.items() if name not in listed and belongs(value))
        listed.update(names)
        if names:
            text += f"\n## {title}\n\n" + "\n".join(block(name, values[name]) for name in names)
    others = sorted(set(values) - listed)
    if others:
        text += "\n## Others\n\n" + "".join(f"- `layermem.{name}`: {first_line(values[name])}\n" for name in others)
    return text


def block(name: str, value: object) -> str:
    if isinstance(value, ModuleType):
        lines = [f"::: {value.__name__}", "    options:", "      show_root_full_path: true"]
    else:
        lines = [f"::: {value.__module__}.{value.__qualname__}", "    options:", "      heading_level: 3"]  # type: ignore[attr-defined]
    if name in ("LayermemError",) or (inspect.isclass(value) and issubclass(value, BaseException)):
        lines.append("      inherited_members: false")
    return (
        "\n".join([*lines, "      heading_level: 3", ""]) if isinstance(value, ModuleType) else "\n".join([*lines, ""])
    )


def first_line(value: object) -> str:
    return (inspect.getdoc(value) or type(value).__name__).splitlines()[0]
