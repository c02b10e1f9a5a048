"""clang-tidy on sources that are checked together: a finding in any of them, or in a header, is an error."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLEAN = "int {name}(int x) {{ return x + 1; }}\n"
BOOL = "bool {name}(int x) {{\n    if (x > 0) {{\n        return true;\n    }}\n    return false;\n}}\n"


def tidy(folder: Path, **texts: str) -> subprocess.CompletedProcess[str]:
    folder = folder / "layermem" / "native"
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / f"{name}.cpp").write_text(text.format(name=name))
    command = [sys.executable, "tools/tidy_native.py", *map(str, folder.glob("*.cpp"))]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_a_finding_names_its_file_whichever_it_is_checked_with(tmp_path):
    ended = tidy(tmp_path, first=CLEAN, second=BOOL, third="int *third() {{ return 0; }}\n")
    assert ended.returncode == 1, ended.stderr
    assert "second.cpp:3:16: error: redundant boolean literal" in ended.stdout
    assert "third.cpp:1:23: error: use nullptr" in ended.stdout and "first.cpp" not in ended.stdout


def test_clean_files_and_only_those_pass(tmp_path):
    ended = tidy(tmp_path / "clean", first=CLEAN, second=CLEAN)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    ended = tidy(tmp_path / "wrong", first=CLEAN, second="int {name}() {{ return 1 }}\n")
    assert ended.returncode == 1 and "expected ';'" in ended.stdout
