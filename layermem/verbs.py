"""Rooms that are also verbs: `layermem.plan` is a package and `layermem.plan(...)` a question to it (api.py).

    layermem.plan.base      the room's file
    layermem.plan("net.prototxt", budget="2GiB")      what `layermem plan` does

Python keeps one attribute for both names, and whichever is imported last would win; so the module itself is callable.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Any:
        verb = self.__name__.rpartition(".")[2]
        return getattr(import_module("layermem.api"), verb)(*args, **options)


def callable_room(name: str) -> None:
    """Let the module called `name` answer calls as the public function of the same name."""
    sys.modules[name].__class__ = _Room
