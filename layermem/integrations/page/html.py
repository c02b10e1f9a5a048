"""The page as one file: assets/page.html with the style, the scripts and the data inside, and nothing loaded.

A Content-Security-Policy forbids every request; scripts and styles run only where their hash is on its list, so no
text of a net or a log can become one.  A page that is served live may request data, from its own server only.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files

from layermem.integrations.page.columns import pack
from layermem.utils.files import check_ending, check_output

STYLES = ("uplot.min.css", "page.css")
SCRIPTS = (
    "uplot.min.js",
    "dagre.min.js",
    "base.js",
    "data.js",
    "tables.js",
    "arena.js",
    "costs.js",
    "graph.js",
    "curves.js",
    "strategies.js",
    "training.js",
    "live.js",
    "main.js",
)
MARK = re.compile(r"\{\{([a-z]+)\}\}")  # a placeholder in page.html


def page_html(data: Mapping[str, object], *, live: bool = False) -> bytes:
    """The page of `data` (page/data.py); a `live` page requests more data from its own server."""
    styles, scripts = [_asset(name) for name in STYLES], [_asset(name) for name in SCRIPTS]
    parts = {
        "policy": _policy(styles, scripts, live=live),
        "title": escape(f"{data['title']} - layermem"),
        "style": "\n".join(f"<style>{style}</style>" for style in styles),
        "data": pack({**data, "live": live}),
        "script": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    return MARK.sub(lambda mark: parts[mark[1]], _asset("page.html")).encode()


def check_page(path: str) -> None:
    """Raise InputError, before any work, for a page that cannot be written."""
    check_ending(path, (".html",), "a page")
    check_output(path)


def _asset(name: str) -> str:
    text = (files("layermem.integrations.page") / "assets" / name).read_text(encoding="utf-8")
    return text.partition("//# sourceMappingURL=")[0]  # the source map is not in the page


def _policy(styles: Iterable[str], scripts: Iterable[str], *, live: bool) -> str:
    rules = {
        "default-src": "'none'",
        "script-src": " ".join(map(_hash, scripts)),
        "style-src": " ".join(map(_hash, styles)),
        "img-src": "data:",
        "connect-src": "'self'" if live else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
