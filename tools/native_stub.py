#!/usr/bin/env python3
"""Write layermem/_native_cpu.pyi, the types of the native kernels, from the signatures that the built module reports.

tools/native_stub.py            after a change of the bindings in native/cpu
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

STUB = Path(__file__).resolve().parents[1] / "layermem" / "_native_cpu.pyi"
HEAD = '''"""Types of the native kernels of the cpu backend; layermem._native.cpu.__doc__ explains them.

Written by tools/native_stub.py.
"""

from collections.abc import Sequence
'''
TYPES = (
    (r"typing\.SupportsInt( \| typing\.SupportsIndex)?", "int"),
    (r"typing\.SupportsFloat( \| typing\.SupportsIndex)?", "float"),
    (r"(typing|collections\.abc)\.Sequence", "Sequence"),
    (r"typing\.Optional\[(\w+)\]", r"\1 | None"),
    (r"layermem\._native\.cpu\.", ""),
)


def signature(function: object) -> str:
    """'name(arguments) -> result' as pybind11 writes it, with types as Python code has them."""
    text = (inspect.getdoc(function) or "").split("\n")[0]
    for pattern, replacement in TYPES:
        text = re.sub(pattern, replacement, text)
    return re.sub(r"\((self|arg0): \w+", "(self", text)


def class_lines(name: str, cls: type) -> Iterator[str]:
    """The class with its properties, its constructor if Python code may call it, and its call operator."""
    yield f"class {name}:"
    for member, value in sorted(vars(cls).items()):
        if isinstance(value, property):
            yield f"    @property\n    def {member}{signature(value.fget)}: ..."
        elif member in ("__init__", "__call__") and signature(value).startswith(member):
            yield f"    def {signature(value)}: ..."


def stub(module: ModuleType) -> str:
    members = {name: value for name, value in sorted(vars(module).items()) if not name.startswith("_")}
    lines = [line for name, value in members.items() if isinstance(value, type) for line in class_lines(name, value)]
    lines += [f"def {signature(value)}: ..." for value in members.values() if not isinstance(value, type)]
    return "\n".join([HEAD, *lines, ""])


if __name__ == "__main__":
    from layermem._native import cpu

    STUB.write_text(stub(cpu))
