"""Serves the page of a log while it grows, on the loopback interface alone, and only to read.

    GET /       the page, with the curves so far         GET /data   its section `training` as JSON; 304 if unchanged

A request whose Host is another name than that of the loopback interface is refused: a page of another site could
otherwise read the log through a name that it lets resolve to 127.0.0.1 (DNS rebinding).
"""

from __future__ import annotations

import json
import os
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from layermem.errors import InputError
from layermem.report.page.data import log_page
from layermem.report.page.html import page_html
from layermem.report.page.training import training_page
from layermem.report.read_log import read_records

ADDRESS = "127.0.0.1"
NAMES = ADDRESS, "localhost"
PATIENCE = 10  # times the seconds of a read for which its result is kept
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}


class Follower:
    """The newest section of the log `path`, read again when the file has changed."""

    def __init__(self, path: str):
        self.path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, int] | None = None
        self._section = training_page(path, read_records(path))
        self._version, self._next = 0, 0.0

    def section(self) -> tuple[str, dict[str, object]]:
        """A tag that changes with the section, and the section; `error` is in it where the log cannot be read now."""
        with self._lock:
            if time.monotonic() >= self._next:
                self._read()
            return f'"{self._version}"', self._section

    def _read(self) -> None:
        begin = time.monotonic()
        try:
            state = os.stat(self.path)
            seen = state.st_mtime_ns, state.st_size
            if seen == self._seen:
                return
            self._section = training_page(self.path, read_records(self.path))
            self._seen = seen
        except (InputError, OSError) as error:
            self._section = {**self._section, "error": str(error)}
            self._seen = None
        self._version += 1
        self._next = begin + PATIENCE * (time.monotonic() - begin)


class Server(ThreadingHTTPServer):
    """The server of one log; `port` 0 is any free one.  OSError if the port is taken."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, path: str, port: int = 0):
        self.follower = Follower(path)
        super().__init__((ADDRESS, port), Handler)
        self.hosts = {f"{name}:{self.server_port}" for name in NAMES}

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    """Answers one request; any method but GET is refused by the base class."""

    server: Server
    timeout = 30  # seconds for a request
    server_version, sys_version = "layermem", ""

    def do_GET(self) -> None:
        if self.headers.get("Host") not in self.server.hosts:
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", b"unknown host name\n")
            return
        tag, section = self.server.follower.section()
        if self.path == "/":
            page = page_html(log_page(_title(section), section), live=True)
            self._answer(HTTPStatus.OK, "text/html; charset=utf-8", page)
        elif self.path != "/data":
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"no such page\n")
        elif self.headers.get("If-None-Match") == tag:
            self._answer(HTTPStatus.NOT_MODIFIED, "application/json", b"", tag)
        else:
            self._answer(HTTPStatus.OK, "application/json", json.dumps(section, allow_nan=False).encode(), tag)

    def _answer(self, status: HTTPStatus, kind: str, content: bytes, tag: str | None = None) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            **HEADERS,
            **({"ETag": tag} if tag else {}),
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the terminal shows the address only."""


def _title(section: dict[str, object]) -> str:
    return f"{section['title']} ({section['source']})" if section["title"] else str(section["source"])
