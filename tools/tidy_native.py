#!/usr/bin/env python3
"""Run clang-tidy on C++ files of layermem/native, without its microkernels and bindings (.clang-tidy explains why).

tools/tidy_native.py             all of them
tools/tidy_native.py FILE ...    these

Files that can be compiled together are checked together, so that their headers are parsed once, in a third of the time.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from compile_native import INCLUDE, group_files, jobs, write_if_changed

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "tidy"  # below .clang-tidy
CORES = 2  # determines the groups: they are the same on every machine


def sources() -> list[Path]:
    every = sorted((ROOT / INCLUDE).rglob("*.cpp"))
    return [path for path in every if not {"bindings", "microkernels"} & {*path.parts, path.stem}]


def findings(files: Sequence[Path]) -> str:
    """The findings of clang-tidy for files that are compiled together."""
    text = "".join(f'#include "{file}"  // NOLINT: a source\n' for file in files)
    group = write_if_changed(BUILD / f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.cpp", text)
    command = [Path(sys.executable).parent / "clang-tidy", group, "--", "-std=c++17", f"-I{ROOT / INCLUDE}"]
    ended = subprocess.run(command, capture_output=True, text=True)
    return ended.stdout or ended.stderr if ended.returncode else ended.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    files = [path.resolve() for path in parser.parse_args().files] or sources()
    with ThreadPoolExecutor(jobs()) as pool:
        found = [text for text in pool.map(findings, group_files(files, CORES)) if text]
    print("".join(found), end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
