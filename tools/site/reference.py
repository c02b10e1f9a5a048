"""The page of the Python reference: public names come from the package, their descriptions from docstrings."""

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
    public = {value for value in values.values() if inspect.isclass(value)}
    text, listed = HEAD, set()
    for title, belongs in GROUPS:
        names = sorted(name for name, value in values.items() if name not in listed and belongs(value))
        listed.update(names)
        if names:
            text += f"\n## {title}\n\n" + "\n".join(block(values[name], public) for name in names)
    others = sorted(set(values) - listed)
    if others:
        text += "\n## Others\n\n" + "".join(f"- `layermem.{name}`: {first_line(values[name])}\n" for name in others)
    return text


def block(value: object, public: set[type]) -> str:
    """The mkdocstrings block of a name; inherited members are described at the base if that is public too."""
    options = {"heading_level": "3"}
    if isinstance(value, ModuleType):
        where = value.__name__
        options["show_root_full_path"] = "true"
    else:
        where = f"{value.__module__}.{value.__qualname__}"  # type: ignore[attr-defined]
        if inspect.isclass(value) and (issubclass(value, BaseException) or public & set(value.__mro__[1:])):
            options |= {"inherited_members": "false", "show_bases": "true"}
    return "\n".join([f"::: {where}", "    options:", *(f"      {key}: {value}" for key, value in options.items()), ""])


def first_line(value: object) -> str:
    return (inspect.getdoc(value) or type(value).__name__).splitlines()[0]
