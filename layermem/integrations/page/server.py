"""Serves the page of a log while it grows, read-only and only on the loopback interface.

    GET /             the page, with the curves so far
    GET /data         its section `training` as JSON, with the state of the other sections in `planned`; 304 if
                      unchanged
    GET /plan         the data of the plan of the run as JSON, once it is ready: net, arena, facts
    GET /strategies   the section of strategies, once it is ready

A request is refused unless its Host names the loopback interface: otherwise a page of another site could read the log
through a name that resolves to 127.0.0.1 (DNS rebinding).
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from layermem.errors import InputError
from layermem.integrations.page.data import log_page
from layermem.integrations.page.html import page_html
from layermem.integrations.page.planned import SECTIONS, PlannedPage
from layermem.integrations.page.training import training_page
from layermem.report.read_log import current_start, last_training, read_records
from layermem.report.records import Record

ADDRESS = "127.0.0.1"
NAMES = ADDRESS, "localhost"
PATIENCE = 10  # the result of a read is kept for this many times its duration
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}


def ignore_run(start: Record) -> None:
    """Do nothing; for logs whose runs are not planned."""


class Follower:
    """The newest section of the log `path`, which is read again when the file has changed.

    on_run   called with the `start` record of the last run after each read, if there is one
    """

    def __init__(self, path: str, on_run: Callable[[Record], None] = ignore_run):
        self.path, self.on_run = path, on_run
        self._lock = threading.Lock()
        self._seen: tuple[int, int] | None = None
        self._version, self._next = 0, 0.0
        self._section = self._section_of(os.stat(path).st_mtime if os.path.exists(path) else 0.0)

    def section(self) -> tuple[int, dict[str, object]]:
        """A number that changes with the section, and the section; it has `error` if the log cannot be read now."""
        with self._lock:
            if time.monotonic() >= self._next:
                self._read()
            return self._version, self._section

    def _read(self) -> None:
        begin = time.monotonic()
        try:
            state = os.stat(self.path)
            seen = state.st_mtime_ns, state.st_size
            if seen == self._seen:
                return
            self._section = self._section_of(state.st_mtime)
            self._seen = seen
        except (InputError, OSError) as error:
            self._section = {**self._section, "error": str(error)}
            self._seen = None
        self._version += 1
        self._next = begin + PATIENCE * (time.monotonic() - begin)

    def _section_of(self, changed: float) -> dict[str, object]:
        records = last_training(read_records(self.path))
        if start := current_start(records):
            self.on_run(start)
        return {**training_page(self.path, records), "changed": changed}


class Server(ThreadingHTTPServer):
    """The server of one log; `port` 0 is any free one.  OSError if the port is taken.

    planned   the sections of the plan of its run
    on_run    see Follower
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self,
        path: str,
        port: int = 0,
        planned: PlannedPage | None = None,
        on_run: Callable[[Record], None] = ignore_run,
    ):
        super().__init__((ADDRESS, port), Handler)
        try:
            self.planned = planned or PlannedPage()
            self.follower = Follower(path, on_run)
        except BaseException:
            self.server_close()
            raise
        self.hosts = {f"{name}:{self.server_port}" for name in NAMES}

    def section(self) -> tuple[str, dict[str, object]]:
        """The section `training` with the state of `planned`, and a tag that changes with either."""
        version, training = self.follower.section()
        planned_version, planned = self.planned.state()
        return f'"{version}-{planned_version}"', {**training, "planned": planned}

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
        if (name := self.path.removeprefix("/")) in SECTIONS:
            self._answer_json(self.server.planned.content(name))
            return
        tag, section = self.server.section()
        if self.path == "/":
            page = page_html(log_page(_title(section), section), live=True)
            self._answer(HTTPStatus.OK, "text/html; charset=utf-8", page)
        elif self.path != "/data":
            self._answer_json(None)
        elif self.headers.get("If-None-Match") == tag:
            self._answer(HTTPStatus.NOT_MODIFIED, "application/json", b"", tag)
        else:
            self._answer_json(json.dumps(section, allow_nan=False).encode(), tag)

    def _answer_json(self, content: bytes | None, tag: str | None = None) -> None:
        if content is None:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"no such page\n")
        else:
            self._answer(HTTPStatus.OK, "application/json", content, tag)

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
        """Print nothing: the terminal shows only the address."""


def _title(section: dict[str, object]) -> str:
    return f"{section['title']} ({section['source']})" if section["title"] else str(section["source"])
