"""The command, run inside this process: what it printed, and its exit code."""

from dataclasses import dataclass

import pytest

from layermem.cli import main


@dataclass
class Ended:
    code: int
    out: str
    err: str


@pytest.fixture
def layermem(capsys):
    def run(*words) -> Ended:
        capsys.readouterr()
        code = main([str(word) for word in words])
        return Ended(code, *capsys.readouterr())

    return run


@pytest.fixture
def prototxt(tmp_path):
    def write(text: str, name: str = "net.prototxt"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write
