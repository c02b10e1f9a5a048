"""Pages of small nets, and a headless browser that shows them.

The browser is Chromium, driven by playwright; tests that need it are skipped where either is not installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from layermem.graph.net import Net
from layermem.integrations.page.data import plan_page
from layermem.integrations.page.html import page_html
from layermem.integrations.page.strategies import strategies_page
from layermem.proto.read import read_net_text
from layermem.report.plan_report import PlanReport, evaluate
from layermem.solver.jobs import StepOptions, net_job
from tests.nets import NETS
from tests.report.conftest import sliced as sliced

SIZES = {"phone": (390, 844), "laptop": (1366, 768), "wide": (2200, 1200)}


@pytest.fixture(scope="session")
def job():
    net = Net(read_net_text(NETS["clip"]), 0)
    return net_job(net, StepOptions(device="cpu")).with_host_budget("8KiB")


@pytest.fixture(scope="session")
def report(job) -> PlanReport:
    """The smallest plan of `auto`: it recomputes and offloads; with 1 TiB of host memory it would not recompute."""
    return evaluate(job, "auto", evaluate(job, "auto").minimum_bytes)


@pytest.fixture(scope="session")
def strategies(report):
    return strategies_page(report, ["liveness", "recompute", "auto"], 3)


@pytest.fixture(scope="session")
def page(report, strategies, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_bytes(page_html(plan_page(report, strategies=strategies)))
    return path


@dataclass
class Shown:
    """A page in the browser, and its errors."""

    page: object
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@pytest.fixture
def show(chromium):
    """show(address, size, theme) draws the page; at the end, no request has left it and no script has failed."""

    @contextmanager
    def shown(address: str, size: str = "laptop", theme: str = "light") -> Iterator[Shown]:
        width, height = SIZES[size]
        tab = chromium.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
        tab.set_default_timeout(10_000)
        result = Shown(tab)
        tab.on("request", lambda request: result.requests.append(request.url))
        tab.on("console", lambda message: result.errors.append(message.text) if message.type == "error" else None)
        tab.on("pageerror", lambda error: result.errors.append(str(error)))
        tab.goto(address)
        tab.wait_for_selector("html[data-ready]", timeout=20_000)
        yield result
        tab.close()
        assert result.errors == []
        assert {url.partition("#")[0] for url in result.requests if not url.startswith("data:")} == {address}

    return shown
