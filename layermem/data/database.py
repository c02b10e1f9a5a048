"""Opens a database of Datums: an LMDB or a LevelDB, according to its files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from layermem.data.datum_source import DatumSource
from layermem.data.leveldb_source import LevelDbSource, is_leveldb
from layermem.data.lmdb_source import LmdbSource
from layermem.utils.input_files import exists


def open_database(path: Path, *, stated: str = "LMDB", **options: Any) -> DatumSource:
    """Open the records at `path`; `stated` is the backend, LMDB or LEVELDB, if the files show neither."""
    source = LevelDbSource if holds_leveldb(path, stated) else LmdbSource
    return source(path, **options)


def holds_leveldb(path: Path, stated: str) -> bool:
    """Whether the database at `path` is a LevelDB, according to its files, or else to `stated`."""
    if exists(path / "data.mdb") or os.path.isfile(path):
        return False
    return is_leveldb(path) or stated == "LEVELDB"
