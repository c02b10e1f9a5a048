"""The modules of a folder."""

import errno
import os

import pytest

from layermem.data.database import database_names
from layermem.utils.modules import modules_in


def test_modules_and_packages_are_found_in_the_order_of_their_names(tmp_path):
    for name in ("b.py", "a.py", "notes.txt", "c/__init__.py", "d/file.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert modules_in([str(tmp_path)]) == [("a", False), ("b", False), ("c", True)]


def test_a_folder_that_the_system_does_not_list_is_an_error_of_the_system(monkeypatch):
    assert "lmdb" in database_names()

    def listdir(folder):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), folder)

    monkeypatch.setattr(os, "listdir", listdir)
    with pytest.raises(OSError, match="Too many open files"):
        database_names()
