"""Converts a notebook to a page: its text, its code, and the outputs stored in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def page(file: Path) -> str:
    cells = json.loads(file.read_text())["cells"]
    return "\n".join(part for cell in cells for part in parts(cell)) + "\n"


def parts(cell: dict[str, Any]) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source, ""]
    shown = [f"```python\n{source}\n```", ""]
    for output in joined(cell["outputs"]):
        data = output.get("data", {})
        text = "".join(output.get("text", data.get("text/plain", "")))
        if "image/png" in data:
            picture = "".join(data["image/png"]).replace("\n", "")
            shown += [f"![picture](data:image/png;base64,{picture})", ""]
        elif text:
            shown += [f"```text\n{text.rstrip()}\n```", ""]
    return shown


def joined(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`outputs` with printed parts joined into one text."""
    found: list[dict[str, Any]] = []
    for output in outputs:
        if found and "text" in output and "text" in found[-1]:
            found[-1] = {**output, "text": [*found[-1]["text"], *output["text"]]}
        else:
            found.append(output)
    return found
