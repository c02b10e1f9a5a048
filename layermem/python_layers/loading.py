"""Finds and imports a user's module.

A module is searched for in the folders of PYTHONPATH, in the folder of the net, in the current one, and then in
Python's own path.  While a user's code is imported or called, and only then,

    - these folders come first in Python's search path
    - `import caffe` imports layermem.caffe (answering.py), even if BVLC Caffe is installed, because layermem cannot run
      its Layer class.  Afterwards the installed Caffe is back
    - its output goes to standard error, separate from results

Modules are imported once.  A module of the same name from another net's folder replaces the earlier one; one that
Python imported from elsewhere is not replaced, and the new one is refused.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from layermem.errors import InputError
from layermem.python_layers.answering import answered
from layermem.python_layers.contract import PythonLayer

SEARCHED = "PYTHONPATH, the folder of the net and the current folder"
_OURS: set[str] = set()  # top-level names imported by this module


def search_path(folder: Path) -> list[str]:
    """The folders that are searched first for the modules of a net in `folder`."""
    named = [os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return [*named, str(folder.resolve()), os.getcwd()]


@contextmanager
def user_code(folder: Path) -> Iterator[None]:
    """A context in which code of a net in `folder` runs."""
    added = search_path(folder)
    sys.path[:0] = added
    try:
        with redirect_stdout(sys.stderr), answered():
            yield
    finally:
        for entry in added:
            with suppress(ValueError):  # the code may have removed it
                sys.path.remove(entry)


def find_file(module: str, folder: Path) -> str | None:
    """The file of a module, or of its package, in the folders searched first; None if it is not there."""
    top = module.partition(".")[0]
    importlib.invalidate_caches()
    spec = PathFinder.find_spec(top, search_path(folder))
    if spec is None:
        return None
    return spec.origin or next(iter(spec.submodule_search_locations or ()), None)


def import_user_module(module: str, folder: Path) -> ModuleType:
    """Import the module within `user_code` and return it; raise the errors of its code."""
    top = module.partition(".")[0]
    loaded, file = sys.modules.get(top), find_file(module, folder)
    if loaded is not None and file is not None and not _is_from(loaded, file):
        if top not in _OURS:
            raise InputError(
                f"names the Python module '{module}' ({file}), but Python has imported '{top}' from "
                f"{_file_of(loaded) or 'itself'} already; rename yours"
            )
        for name in [name for name in sys.modules if name == top or name.startswith(f"{top}.")]:
            del sys.modules[name]
    if top not in sys.modules:
        _OURS.add(top)
    return importlib.import_module(module)


def _is_from(module: ModuleType, file: str) -> bool:
    return os.path.realpath(_file_of(module) or "") == os.path.realpath(file)


def _file_of(module: ModuleType) -> str | None:
    """The file of a module, or the folder of a package without one."""
    file = getattr(module, "__file__", None)
    return file or next(iter(getattr(module, "__path__", ())), None)


def class_of(module: ModuleType, name: str) -> type[PythonLayer]:
    """The class `name` of a module; InputError unless it is a Python layer."""
    found = getattr(module, name, None)
    if isinstance(found, type) and issubclass(found, PythonLayer):
        return found
    if found is not None:
        what = f"names '{name}' of the Python module '{module.__name__}', which is no class derived from caffe.Layer"
        raise InputError(f"{what} or layermem.PythonLayer; derive it", path=_file_of(module))
    classes = [
        each
        for each, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, PythonLayer) and value is not PythonLayer
    ]
    there = f"has {' '.join(classes)}" if classes else "has no class derived from caffe.Layer"
    what = f"names the class '{name}' of the Python module '{module.__name__}', which {there}; correct the name"
    raise InputError(what, path=_file_of(module))
