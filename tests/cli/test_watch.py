"""`layermem watch`: the page of a run, served while it goes on."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

import pytest


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("no.txt",), "is not a log by its name"),
        (("gone/no.jsonl",), "there is no folder 'gone'"),
        (("x.jsonl", "--port", "70000"), "--port 70000 is no port"),
        (("x.jsonl", "--points", "1"), "--points 1 is no number of budgets"),
        (("x.jsonl", "--strategies", "magic"), "unknown strategy 'magic'"),
        (("x.jsonl", "--solver", "gone.prototxt"), "gone.prototxt: no such file; give an existing solver"),
    ],
)
def test_watch_refuses_what_it_cannot_serve(layermem, words, says):
    ended = layermem("watch", *words)
    assert ended.code == 2 and says in ended.sentence


def accept_interrupts():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # they may be ignored where the tests run


def test_watch_prints_its_address_serves_the_log_and_ends_with_0_on_ctrl_c(tmp_path):
    log = tmp_path / "run.jsonl"
    log.write_text('{"event": "start", "format": 1, "net": "it"}\n')
    words = [sys.executable, "-m", "layermem", "watch", str(log)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, **pipes, text=True, preexec_fn=accept_interrupts) as process:
        address = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())[0]
        with urllib.request.urlopen(f"{address}data", timeout=10) as answer:
            assert b'"title": "it"' in answer.read()
        said = process.stderr.readline() + process.stderr.readline()  # of the process that plans
        with urllib.request.urlopen(f"{address}data", timeout=10) as answer:
            assert b"does not name the solver of its run" in answer.read()
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(10) == 0 and process.stdout.read() == ""
        said = " ".join((said + process.stderr.read()).split())
    assert said.startswith(f"layermem: {log}: the plan of its run cannot be shown: ")
    assert said.endswith("--solver F or --net F, with --budget B, names what to show instead")


def test_watch_waits_for_a_log_that_is_not_there_yet(tmp_path):
    log = tmp_path / "run.jsonl"
    words = [sys.executable, "-m", "layermem", "watch", str(log)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    for begins in (True, False):
        with subprocess.Popen(words, **pipes, text=True, preexec_fn=accept_interrupts) as process:
            assert process.stdout.readline() == f"waiting for {log}, which is not there yet (Ctrl-C ends this)\n"
            if begins:
                log.write_text('{"event": "start", "format": 1, "net": "it"}\n')
                assert "is shown at http://127.0.0.1:" in process.stdout.readline()
                log.unlink()
            time.sleep(0.5)  # the line is printed, and the wait has begun
            os.kill(process.pid, signal.SIGINT)
            assert process.wait(10) == 0 and process.stdout.read() == ""
            assert not re.search("Traceback", process.stderr.read())
