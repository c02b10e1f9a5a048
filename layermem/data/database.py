"""The kinds of databases of Datums: each module *_database.py of this folder has one (DatumSource).

database_names()              lmdb, leveldb, ...: the modules, none of which is loaded
database_kind("lmdb")         the class of a kind
open_database(path)           the records of a database, of the kind that its files show
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layermem.errors import InputError
from layermem.utils.modules import modules_in

if TYPE_CHECKING:
    from layermem.data.datum_source import DatumSource

DEFAULT = "lmdb"
SUFFIX = "_database"


def database_names() -> list[str]:
    """The kinds, as options name them; the default is the first."""
    names = [name for name, _ in modules_in([str(Path(__file__).parent)]) if name.endswith(SUFFIX)]
    return sorted((name.removesuffix(SUFFIX) for name in names), key=lambda name: (name != DEFAULT, name))


def database_kind(name: str) -> type[DatumSource]:
    """Return the class of a kind; InputError for an unknown one."""
    from layermem.data.datum_source import KINDS

    if name not in database_names():
        raise InputError(f"unknown database backend '{name}'; use {' or '.join(database_names())}")
    import_module(f"layermem.data.{name}{SUFFIX}")
    return KINDS[name]


def kind_at(path: Path, stated: str = DEFAULT) -> type[DatumSource]:
    """Return the kind of the database at `path`; `stated` is that of the backend, if the files show none."""
    kinds = map(database_kind, reversed(database_names()))
    return next((kind for kind in kinds if kind.holds(path)), database_kind(stated.lower()))


def is_database(path: Path) -> bool:
    """Whether the folder at `path` shows that it is a database."""
    return path.is_dir() and any(database_kind(name).holds(path) for name in database_names())


def open_database(path: Path, *, stated: str = DEFAULT, **options: Any) -> DatumSource:
    """Open the records at `path`; `stated` as for kind_at."""
    return kind_at(path, stated)(path, **options)
