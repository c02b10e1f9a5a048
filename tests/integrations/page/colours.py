"""Colours of the page's style, and how far two of them are from one another."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import layermem.integrations.page

STYLE = Path(layermem.integrations.page.__path__[0], "assets", "page.css").read_text()


def families(theme: str) -> dict[str, list[str]]:
    """The colours of a theme by family: `kind` has those of --kind-0, --kind-1 and so on."""
    rules = re.findall(r"^:root[^{]*\{(.*?)^\}", STYLE, re.MULTILINE | re.DOTALL)
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"--(\w+)-\d+: (#\w{6});", rules[theme == "dark"]):
        found.setdefault(name, []).append(value)
    return found


def lab(colour: str) -> tuple[float, float, float]:
    """The colour in CIELAB, where distances are those that eyes see."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    fx, fy, fz = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def nearest(colours: list[str]) -> tuple[float, str, str]:
    """The two colours that are most alike, behind their distance."""
    return min((sum((p - q) ** 2 for p, q in zip(lab(a), lab(b))) ** 0.5, a, b) for a, b in combinations(colours, 2))
