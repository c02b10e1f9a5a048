"""CI installs a browser where it may, says so where it may not, and the closing line counts what no browser showed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = "bash", "sh", "tail", "timeout"  # what the script itself calls


@pytest.fixture
def programs(tmp_path):
    """programs(name=script, ...) is a PATH of these programs alone, beside those that the script needs."""

    def folder(**scripts: str) -> Path:
        for name in NEEDED:
            (tmp_path / name).symlink_to(shutil.which(name))
        for name, script in scripts.items():
            place(tmp_path / name.replace("_", "-"), script)
        return tmp_path

    return folder


def place(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def install(path: Path, seconds: int = 20) -> str:
    environment = {"PATH": str(path), "BROWSER_SECONDS": str(seconds)}
    ended = subprocess.run([str(ROOT / ".ci/browser")], env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0 and not ended.stderr
    return ended.stdout


APPEARS = "case $* in *install*) printf '#!/bin/sh\\n' > {0}/chromium; {1} +x {0}/chromium;; esac"


@pytest.mark.parametrize("manager", ["apt-get", "dnf"])
@pytest.mark.parametrize("user", ["root", "sudo"])
def test_a_browser_is_installed_where_the_system_lets_it(programs, tmp_path, manager, user):
    may = {"id": "echo 0"} if user == "root" else {"id": "echo 1000", "sudo": 'shift; exec "$@"'}
    scripts = {manager.replace("-", "_"): APPEARS.format(tmp_path, shutil.which("chmod"))}
    if user == "sudo":  # `sudo -n true`
        scripts["true"] = "exit 0"
    assert install(programs(**may, **scripts)).startswith("browser: installed chromium in ")


def test_a_browser_that_is_there_is_left_as_it_is(programs):
    assert install(programs(google_chrome="exit 0", id="exit 1")) == "browser: google-chrome is here\n"


@pytest.mark.parametrize(
    "scripts, why",
    [
        ({"id": "echo 1000", "sudo": "exit 1"}, "takes root, or sudo without a password"),
        ({"id": "echo 1000"}, "takes root, or sudo without a password"),
        ({"id": "echo 0"}, "there is no apt-get, dnf or apk"),
        ({"id": "echo 0", "apt_get": "echo Could not resolve deb.debian.org; exit 100"}, "Could not resolve"),
        ({"id": "echo 0", "apt_get": "exec /bin/sleep 30"}, " s of at most 1: "),
        ({"id": "echo 0", "apt_get": "exit 0"}, "does not run"),  # a package that holds no browser
    ],
)
def test_where_none_can_be_installed_the_run_goes_on_and_says_why(programs, scripts, why):
    said = install(programs(**scripts), seconds=1 if "sleep" in scripts.get("apt_get", "") else 20)
    assert said.startswith("browser: none, so tests of pages are skipped: ") and why in said


def test_the_closing_line_counts_the_tests_of_pages_that_no_browser_showed(tmp_path):
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/integrations/page/test_browser.py"]
    test = "the_page_counts_the_bytes or the_keys_move"
    ended = subprocess.run(
        [*command, "-k", test], cwd=ROOT, env={**os.environ, "PATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout
    assert "2 skipped without a browser" in ended.stdout.splitlines()[-1]
