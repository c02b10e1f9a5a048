"""watch: serves the page of a training while it runs."""

from __future__ import annotations

import argparse
import contextlib
import os
import time

from layermem.cli.options import (
    add_budget,
    add_net_or_solver,
    add_points,
    add_strategies,
    add_strategy,
    strategies_text,
)
from layermem.cli.parser import Verbs, add_verb
from layermem.errors import InputError

EXAMPLE = """\
  layermem watch run.jsonl
  # the log of a run elsewhere, with the files of its net here:
  layermem watch run.jsonl --solver digits/solver.prototxt --budget 50%
"""
LAST_PORT = 65535
POLL = 0.2  # seconds between looks for a log that is not there yet


def add_verbs(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "watch",
        "serve the page of a training, which follows its log, on this machine alone: its curves, and "
        "what `layermem report` says of its plan",
        EXAMPLE,
        more=strategies_text,
    )
    parser.add_argument("log", metavar="RUN", help="RUN.jsonl or RUN.csv, which `layermem train --log` writes")
    parser.add_argument("--port", metavar="N", type=int, default=0, help="port of 127.0.0.1 (default: any free one)")
    add_strategies(parser)
    add_points(parser)
    job = parser.add_argument_group("plan", "By default the log says what the run plans, and where its files are.")
    add_net_or_solver(job, required=False)
    add_budget(job)
    add_strategy(job)
    parser.set_defaults(run=run_watch)


def run_watch(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C, which is the normal end."""
    from layermem.cli.watch_planner import Planner
    from layermem.integrations.page.planned import PlannedPage
    from layermem.integrations.page.server import Server
    from layermem.integrations.page.strategies import check_points
    from layermem.report.comparison import select_strategies
    from layermem.utils.input_files import check_regular

    if not 0 <= arguments.port <= LAST_PORT:
        raise InputError(f"--port {arguments.port} is no port; give 1 to {LAST_PORT}, or leave it out for a free one")
    check_points(arguments.points)
    select_strategies(arguments.strategies)
    for path in filter(None, (arguments.net, arguments.solver)):
        check_regular(path, what="net" if arguments.net else "solver")
    if not _wait_for(arguments.log):
        return 0
    planned = PlannedPage()
    with Planner(arguments, planned) as planner:
        try:
            server = Server(arguments.log, arguments.port, planned, planner.follow)
        except OSError as error:
            raise InputError(f"--port {arguments.port}: {error.strerror or error}; give another one") from None
        with server, contextlib.suppress(KeyboardInterrupt):
            print(f"{arguments.log} is shown at {server.url} (Ctrl-C ends this)", flush=True)
            server.serve_forever()
    return 0


def _wait_for(log: str) -> bool:
    """Wait for a log whose training has not begun; whether it came before Ctrl-C."""
    from layermem.report.run_log import ENDINGS
    from layermem.utils.files import check_ending

    if os.path.exists(log):
        return True
    check_ending(log, ENDINGS, "a log")
    if not os.path.isdir(folder := os.path.dirname(log) or "."):
        raise InputError(f"there is no folder '{folder}'; give the log of a training", path=log)
    with contextlib.suppress(KeyboardInterrupt):
        print(f"waiting for {log}, which is not there yet (Ctrl-C ends this)", flush=True)
        while not os.path.exists(log):
            time.sleep(POLL)
        return True
    return False
