"""Sets up every test: random inputs that are the same in every run (tests/numbers.py), the markers `slow` and
`emulator` (tests/speed.py), the option `--thin` (tests/thinning.py), the extension under test
(tools/campaign/native_build.py), and a count of its own for what no browser showed.
"""

import gc
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

import tools.campaign.native_build  # noqa: F401  before layermem._native
from layermem.backends.reference.support.blas import use_one_thread
from layermem.cli.examples import copy, read_examples
from layermem.cli.main import GC_THRESHOLDS
from layermem.graph import validate
from tests.numbers import SEED, numbers_for
from tests.speed import is_slow, needs_emulator
from tests.thinning import thin

validate.is_on = True  # of graphs, between passes
# Hypothesis runs the same examples every time unless LAYERMEM_TEST_SEED changes them, and sets no deadline.
settings.register_profile("steady", derandomize=SEED == 0, deadline=None, print_blob=True)
settings.load_profile("steady")

# Programs that tests start inherit ignored signals: of `nohup`, and of a shell that starts a job in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
for each in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(each, signal.SIG_DFL)

use_one_thread()  # a second thread of NumPy would spin on a core of another worker

TESTS = Path(__file__).parent
BROWSERS = "chromium", "chromium-browser", "google-chrome"
NO_BROWSER = "needs a browser"  # begins the reason of a skipped test of a page


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--thin", action="store_true", help="run a part of all cases (tests/thinning.py)")


@pytest.hookimpl(tryfirst=True)  # before `-k` and `-m` choose
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by the file that they are in, and thin them out."""
    for item in items:
        path = item.path.relative_to(TESTS).as_posix()
        if needs_emulator(path):
            item.add_marker(pytest.mark.emulator)
        if is_slow(path):
            item.add_marker(pytest.mark.slow)
    if config.getoption("thin"):
        items[:], left_out = thin(items)
        config.hook.pytest_deselected(items=left_out)


def pytest_report_teststatus(report: pytest.CollectReport | pytest.TestReport) -> tuple[str, str, str] | None:
    """Count the tests of pages that found no browser under a name of their own."""
    if report.skipped and NO_BROWSER in str(report.longrepr):
        return "skipped without a browser", "s", "SKIPPED"
    return None


def pytest_collection_finish() -> None:
    """Exclude collected tests from garbage collections, which are as rare as in the command: half a million objects
    would take 0.4 s each time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache for the tests: the rates of spill files are kept there."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAYERMEM_CACHE", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def plans_of_one_test(cache: Path) -> Iterator[None]:
    """Plans are kept for the rest of a test alone, so that no result depends on the tests before."""
    yield
    shutil.rmtree(cache / "plans", ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def no_waits_for_disks() -> Iterator[None]:
    """Snapshots of this process are not synced: no test cuts the power, and a thousand waits take seconds.

    tests/utils/test_files.py checks that files are synced, and in which order.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def example_nets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all examples: those of prototxt/, and those that are generated."""
    folder = tmp_path_factory.mktemp("example_nets")
    for name, example in read_examples().items():
        copy(example, folder / name)
    return folder


@pytest.fixture
def rng(request) -> np.random.Generator:
    return numbers_for(request.node.nodeid)


@pytest.fixture(scope="session")
def chromium():
    """The headless browser of all tests of pages in this process, which can have one alone."""
    playwright = pytest.importorskip("playwright.sync_api", reason=f"{NO_BROWSER}, and playwright to drive it")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"{NO_BROWSER}: one of {', '.join(BROWSERS)}")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()
