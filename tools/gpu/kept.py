"""Files of a call of tools/gpu_check.py, and of earlier calls.

    results-NAME.json results-NAME.md   results of all steps; rewritten before and after each step
    log-NAME.txt                        the output of steps as it is printed
    details-NAME.zip                    files that single steps make
    rows-NAME/STEP.jsonl                rows of the running step; deleted when results-NAME.json has them

NAME is the part, or the steps; if an earlier call has used it, a number follows.  There are at most seven files while a
step runs, and four at the end.  All but the log and those in rows-NAME are written atomically, so a call that is killed
leaves everything found so far.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from layermem.utils.files import write_atomically

Row = dict[str, Any]
BEGUN = "begun"  # the state of a step that is running, or was running when its call was killed


def read_rows(path: Path) -> dict[int, Row]:
    """Rows of a step's file by number; an incomplete last line is skipped."""
    rows: dict[int, Row] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        with suppress(json.JSONDecodeError):
            number, row = json.loads(line)
            if row is None:
                rows.pop(number, None)
            else:
                rows[number] = row
    return rows


class Call(NamedTuple):
    """A call, identified by its file of results."""

    results: Path

    @property
    def markdown(self) -> Path:
        return self.results.with_suffix(".md")

    @property
    def log(self) -> Path:
        return self._beside("log", ".txt")

    @property
    def archive(self) -> Path:
        return self._beside("details", ".zip")

    @property
    def folder(self) -> Path:
        return self._beside("rows", "")

    def _beside(self, what: str, ending: str) -> Path:
        return self.results.with_name(self.results.name.replace("results", what, 1)).with_suffix(ending)

    def rows_file(self, step: str) -> Path:
        return self.folder / f"{step}.jsonl"

    def found(self) -> dict[str, Any]:
        """All steps in results.json."""
        found: dict[str, Any] = json.loads(self.results.read_text(encoding="utf-8")) if self.results.exists() else {}
        return found

    def rows(self, step: str) -> list[Row]:
        """The rows of a step, even if it was killed with its call."""
        rows: list[Row] = self.found().get(step, {}).get("rows", [])
        return rows or list(read_rows(self.rows_file(step)).values())

    def rows_of_all_steps(self) -> list[Row]:
        return [row for step in self.found() for row in self.rows(step)]

    @property
    def sources(self) -> str:
        """The digest of the sources of its kernels."""
        return str(self.found().get("preparation", {}).get("sources", ""))

    def detail(self, name: str) -> bytes | None:
        """A file that a step made, or None."""
        with suppress(OSError):
            return (self.folder / name).read_bytes()
        return self._details().get(name)

    def keep(self, files: Mapping[str, bytes]) -> None:
        """Put files into the archive, replacing those with the same names."""
        kept = {**self._details(), **files}

        def write(file: BinaryIO) -> None:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, content in kept.items():
                    archive.writestr(name, content)

        write_atomically(self.archive, write)

    def _details(self) -> dict[str, bytes]:
        with suppress(FileNotFoundError), zipfile.ZipFile(self.archive) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
        return {}

    def close(self, step: str) -> None:
        """Finish a step whose rows are in the results: move its other files into the archive."""
        self.rows_file(step).unlink(missing_ok=True)
        left = sorted(self.folder.iterdir())
        if left:
            self.keep({path.name: path.read_bytes() for path in left})
        for path in left:
            path.unlink()

    def end(self) -> None:
        """Remove the folder of rows after all steps."""
        shutil.rmtree(self.folder, ignore_errors=True)


def new_call(out: Path, name: str) -> Call:
    """Return a call whose files do not exist yet."""
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    calls = (Call(out / f"results-{each}.json") for each in names)
    return next(call for call in calls if not (call.results.exists() or call.folder.exists()))


def calls(paths: Iterable[Path]) -> list[Call]:
    """The calls in folders and files of results, the latest first."""
    found = [path for each in paths for path in (sorted(each.glob("results*.json")) if each.is_dir() else [each])]
    files = dict.fromkeys(path for path in found if path.suffix == ".json")
    return sorted(
        map(Call, files), key=lambda call: str(call.found().get("preparation", {}).get("date", "")), reverse=True
    )


def rows_of_same_sources(call: Call, paths: Sequence[Path]) -> list[Row]:
    """The rows of the call, and of those calls in `paths` whose kernels had the same sources."""
    others = [each for each in calls(paths) if call.sources == each.sources != ""]
    return [row for each in dict.fromkeys([call, *others]) for row in each.rows_of_all_steps()]


def last_rows(paths: Sequence[Path], step: str) -> list[Row]:
    """The rows of the latest call that has rows of the step."""
    return next((rows for call in calls(paths) if (rows := call.rows(step))), [])


def last_detail(paths: Sequence[Path], name: str) -> bytes | None:
    """The file of the latest call that has it."""
    found = (call.detail(name) for call in calls(paths))
    return next((content for content in found if content is not None), None)
