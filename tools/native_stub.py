#!/usr/bin/env python3
"""Write layermem/_native.pyi and _native_cpu.pyi, the types of the native module, from the signatures that it reports.

tools/native_stub.py            after a change of the bindings in native/
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).resolve().parents[1] / "layermem"
HEADS = {
    "_native_cpu.pyi": '''"""Types of layermem._native.cpu, which layermem/backends/cpu/support/launch.py calls.

Written by tools/native_stub.py.
"""
''',
    "_native.pyi": '''"""Types of native planning; the docstrings of the module explain it, and native/planning.

Written by tools/native_stub.py.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from layermem import _native_cpu as cpu

__all__ = ["cpu"]
''',
}
RESULTS = {  # results of functions that build tuples and dictionaries themselves
    "actions": "list[tuple[str, int]]",
    "residencies": "list[tuple[int, int, int, int, int, bool, bool]]",
    "segment": "dict[str, float]",
    "peak_profile": "tuple[NDArray[np.int64], NDArray[np.int64]]",
}
TYPES = (
    (r"typing\.SupportsInt( \| typing\.SupportsIndex)?", "int"),
    (r"typing\.SupportsFloat( \| typing\.SupportsIndex)?", "float"),
    (r"(typing|collections\.abc)\.Sequence", "Sequence"),
    (r"typing\.Optional\[(\w+)\]", r"\1 | None"),
    (
        r"typing\.Annotated\[numpy\.typing\.ArrayLike, numpy\.int64\]|numpy\.typing\.NDArray\[numpy\.int64\]",
        "NDArray[np.int64]",
    ),
    (r"layermem\._native\.(cpu\.)?", ""),
)


def signature(function: object, name: str) -> str:
    """'(arguments) -> result' in pybind11's form, with types of Python code."""
    text = (inspect.getdoc(function) or "").split("\n")[0].removeprefix(name)
    for pattern, replacement in TYPES:
        text = re.sub(pattern, replacement, text)
    if name in RESULTS:
        text = text.rpartition(" -> ")[0] + f" -> {RESULTS[name]}"
    return re.sub(r"\((self|arg0): \w+", "(self", text)


def class_lines(name: str, cls: type) -> Iterator[str]:
    """The class with its properties and methods, and its constructor if Python code may call it."""
    yield f"class {name}:"
    for member, value in sorted(vars(cls).items()):
        static = isinstance(value, staticmethod)
        function = value.fget if isinstance(value, property) else getattr(cls, member) if static else value
        if not (inspect.getdoc(function) or "").startswith((f"{member}(", "(self", "(arg0")):
            continue  # defined by Python, not pybind11
        if isinstance(value, property) and value.fset is not None:
            yield f"    {member}: {signature(function, member).rpartition(' -> ')[2]}"
            continue
        if isinstance(value, property):
            yield "    @property"
        elif static:
            yield "    @staticmethod"
        elif member.startswith("_") and member not in ("__init__", "__call__"):
            continue
        yield f"    def {member}{signature(function, member)}: ..."


def stub(module: ModuleType) -> str:
    """The stub of layermem._native or of layermem._native.cpu."""
    members = {name: value for name, value in sorted(vars(module).items()) if not name.startswith("_")}
    classes = {name: value for name, value in members.items() if isinstance(value, type)}
    lines = [line for name, value in classes.items() for line in class_lines(name, value)]
    lines += [f"def {name}{signature(value, name)}: ..." for name, value in members.items() if inspect.isroutine(value)]
    return "\n".join([HEADS[file_name(module)], *lines, ""])


def file_name(module: ModuleType) -> str:
    return module.__name__.removeprefix("layermem.").replace(".", "_") + ".pyi"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    from layermem import _native

    for module in (_native, _native.cpu):
        (PACKAGE / file_name(module)).write_text(stub(module))


if __name__ == "__main__":
    main()
