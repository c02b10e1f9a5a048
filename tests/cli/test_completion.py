"""`layermem completion`, in a real bash."""

import shutil
import subprocess
import sys

import pytest

pytest.importorskip("argcomplete")

TRY = """
eval "$(layermem completion bash)"
try() {
    COMP_LINE="$1"; COMP_POINT=${#1}; COMP_TYPE=9; COMP_WORDS=($1); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _python_argcomplete layermem; echo "${COMPREPLY[@]}"
}
"""


@pytest.fixture
def bash(tmp_path, monkeypatch):
    """The words with which bash completes a line, with `layermem` on the path."""
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    command = tmp_path / "layermem"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m layermem "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def run(*lines):
        script = TRY + "".join(f"try '{line}'\n" for line in lines)
        ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
        return [line.split() for line in ended.stdout.splitlines()]

    return run


def test_bash_completes_verbs_options_and_values(bash):
    lines = "layermem pl", "layermem plan --strategy rec", "layermem data ch", "layermem train --sigint-effect s"
    lines += ("layermem plan --card B",)
    assert bash(*lines) == [
        ["plan", "plan-graph"],
        ["recompute", "recompute-exact", "recompute-approx"],
        ["check"],
        ["stop", "snapshot"],
        ["B200", "B300"],
    ]


@pytest.mark.parametrize(("shell", "has"), [("bash", "complete -o"), ("zsh", "compdef"), ("fish", "complete -")])
def test_every_shell_has_its_lines(layermem, shell, has):
    ended = layermem("completion", shell)
    assert ended.code == 0 and has in ended.out and "layermem" in ended.out
