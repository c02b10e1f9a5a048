"""The hook that checks subjects of commits."""

import subprocess
from pathlib import Path

import pytest

HOOK = Path(__file__).resolve().parents[1] / ".ci/hooks/commit-msg"


@pytest.mark.parametrize(
    "subject, fault",
    [
        ("schedule: check copies of persistent buffers", ""),
        ("planning, tools: compare kept plans in one way", ""),
        ("Merge branch 'slices'", ""),
        ("# a comment of git\ndocs: name the hook", ""),
        ("Check copies of persistent buffers", "package: imperative subject"),
        ("schedule: check copies.", "without a full stop"),
        ("schedule: the check of copies", "a verb in the imperative"),
        ("schedule: " + "check " * 11, "shorten it to 72"),
    ],
)
def test_a_subject_names_its_package_and_is_short(tmp_path, subject, fault):
    message = tmp_path / "message"
    message.write_text(f"{subject}\n\nThe reason.\n")
    done = subprocess.run([HOOK, message], capture_output=True, text=True)
    assert fault in done.stderr and (done.returncode == 0) == (not fault)
