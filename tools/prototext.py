"""Where the tools/make_*.py put what they write."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "prototxt"


def write(folder: str, files: dict[str, str]) -> None:
    """Write the files of one net below prototxt/, and say so."""
    place = ROOT / folder
    place.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (place / name).write_text(text)
        print(f"prototxt/{folder}/{name}  {text.count(chr(10))} lines")
