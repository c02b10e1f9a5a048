"""A program of Caffe, run inside this process, and the lines of its log."""

import re

import pytest

LINE = re.compile(r"([IWEF])\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ ([\w.]+:\d+)\] (.*)")


class Run:
    """The exit code, standard output, and standard error, of which every line has glog's prefix."""

    def __init__(self, ended):
        self.code, self.out = ended.code, ended.out
        matches = [LINE.fullmatch(line) for line in ended.err.splitlines()]
        assert all(matches), ended.err
        self.log = [match.groups() for match in matches]

    @property
    def text(self) -> str:
        return "".join(f"{text}\n" for _, _, text in self.log)

    @property
    def fatal(self) -> str:
        """The text of the error that ended the program; asserts that it aborted."""
        assert self.code == 134 and self.log[-1][0] == "F"
        return "\n".join(text for severity, _, text in self.log if severity == "F")


@pytest.fixture
def caffe(layermem):
    return lambda *words: Run(layermem("caffe", *words))
