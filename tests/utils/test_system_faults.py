"""Errors of the system as sentences."""

import errno
import os
import re

import pytest

from layermem.utils.system_faults import REMEDIES, remedy_of, system_fault


@pytest.mark.parametrize("number", [*REMEDIES, errno.EIO, errno.ELOOP])
@pytest.mark.parametrize("path", [None, "folder/file"])
def test_an_error_of_the_system_has_its_path_its_reason_and_a_remedy(number, path):
    error = OSError(number, os.strerror(number), path)
    said = str(system_fault(error))
    assert said.startswith(f"{path}: {os.strerror(number)}; " if path else f"{os.strerror(number)}; ")
    assert said.endswith(remedy_of(error, "try again, or another file" if path else "try again"))


@pytest.mark.parametrize(
    "error, words",
    [
        (MemoryError(), "no memory left; free some memory"),
        (ImportError("libx.so: failed to map segment from shared object"), "no memory left"),
        (RuntimeError("can't start new thread"), "starts no further thread; end other processes, or raise .*ulimit -u"),
        (RuntimeError("Could not determine home directory."), "no home folder for this user; set HOME"),
    ],
)
def test_so_has_what_python_says_without_a_number(error, words):
    assert re.search(words, str(system_fault(error)))


@pytest.mark.parametrize("error", [RuntimeError("other"), OSError("no number"), ValueError(), ImportError("numpy")])
def test_other_errors_are_ours(error):
    assert system_fault(error) is None


def test_an_error_of_a_value_has_the_remedy_of_its_caller():
    assert remedy_of(ValueError("embedded null byte"), "give another file") == "give another file"


def test_a_working_folder_that_was_removed_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(FileNotFoundError) as caught:
        os.getcwd()
    assert str(system_fault(caught.value)) == "the working folder has been removed; change to one that exists"
