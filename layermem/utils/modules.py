"""The modules of a folder of the package, of which each registers what it has."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pkgutil import iter_modules


def modules_in(folders: Iterable[str]) -> list[tuple[str, bool]]:
    """The name of every module in the folders, without those around it, and whether it is a package.

    OSError for a folder that the system does not list, as with too many open files: pkgutil would find nothing there.
    """
    for folder in folders:
        os.listdir(folder)
    return [(module.name, module.ispkg) for module in iter_modules(folders)]
