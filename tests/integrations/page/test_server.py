"""The page of a log while it grows."""

import http.client
import json
import os
import threading

import pytest

from layermem.errors import InputError
from layermem.integrations.page.data import plan_page
from layermem.integrations.page.planned import PlannedPage
from layermem.integrations.page.server import Server
from tests.integrations.page.test_training import RECORDS, TEST, train

LINES = [json.dumps(record) + "\n" for record in RECORDS]


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text("".join(LINES))
    return path


@pytest.fixture
def server(log, monkeypatch):
    monkeypatch.setattr("layermem.integrations.page.server.PATIENCE", 0)
    with Server(str(log), planned=PlannedPage()) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def request(server, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def test_a_growing_log_is_read_again_and_an_unchanged_one_is_not_sent(server, log):
    answer, body = request(server, "/data")
    tag = answer.headers["ETag"]
    assert answer.status == 200 and json.loads(body)["iteration"] == 2
    assert request(server, "/data", **{"If-None-Match": tag})[0].status == 304
    line = json.dumps(train(4, 1.0, 8.0)) + "\n"
    with log.open("a") as file:
        file.write(line + line[:20])  # the last one is not yet complete
    answer, body = request(server, "/data", **{"If-None-Match": tag})
    assert answer.status == 200 and answer.headers["ETag"] != tag and json.loads(body)["iteration"] == 4


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "localhost:1", "[::1]:80"])
def test_another_host_name_is_refused(server, host):
    for path in ("/", "/data"):
        answer, body = request(server, path, Host=host)
        assert answer.status == 403 and b"loss" not in body


def test_it_listens_on_the_loopback_interface_and_only_answers_reads(server):
    assert server.server_address[0] == "127.0.0.1"
    for method in ("POST", "PUT", "DELETE"):
        assert request(server, "/data", method)[0].status == 501
    assert request(server, "/../run.jsonl")[0].status == 404
    answer, _ = request(server, "/", Host=f"localhost:{server.server_port}")
    assert answer.status == 200 and answer.headers["X-Content-Type-Options"] == "nosniff"


def test_a_log_that_breaks_keeps_its_curves_and_says_what_is_wrong(server, log):
    log.write_text("".join(LINES) + "nonsense\n")
    section = json.loads(request(server, "/data")[1])
    assert "is not a record of a log" in section["error"] and section["charts"]
    log.write_text("".join([*LINES, json.dumps({**TEST, "iteration": 6}) + "\n"]))
    section = json.loads(request(server, "/data")[1])
    assert "error" not in section and section["iteration"] == 6


def test_a_log_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        Server(str(tmp_path / "run.jsonl"))


def test_the_page_follows_the_log_in_a_browser(server, log, chromium):
    tab, errors, requests = chromium.new_page(), [], []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto(server.url)
    tab.wait_for_selector("html[data-ready]")
    assert tab.locator(".chart canvas").count() == 3 and tab.inner_text(".tile strong >> nth=0") == "2"
    with log.open("a") as file:
        file.write(json.dumps({**train(4, 1.0, 8.0), "outputs": {"loss": 1.0, "<img src=x>": 2.0}}) + "\n")
    tab.wait_for_selector(".tile strong:text-is('4')", timeout=10_000)
    assert any("<img src=x>" in text for text in tab.locator(".u-label").all_inner_texts())
    assert tab.locator("img").count() == 0
    assert "The run goes on" in tab.inner_text("#training [role=status]")
    os.utime(log, (0, 0))  # as if no record had come for long
    tab.wait_for_selector("#training [role=status]:has-text('No record since')", timeout=10_000)
    tab.close()
    assert errors == [] and all(url.startswith((server.url, "data:")) for url in requests)


def test_the_sections_of_the_plan_are_served_once_they_are_ready(server):
    planned = server.planned
    assert json.loads(request(server, "/data")[1])["planned"]["plan"] == 0
    assert [request(server, f"/{name}")[0].status for name in ("plan", "strategies")] == [404, 404]
    tag = request(server, "/data")[0].headers["ETag"]
    plan = planned.begin()
    planned.add(plan, "plan", b'{"title": "it"}')
    answer, body = request(server, "/data", **{"If-None-Match": tag})
    assert answer.status == 200 and json.loads(body)["planned"]["ready"] == ["plan"]
    answer, body = request(server, "/plan")
    assert answer.status == 200 and body == b'{"title": "it"}' and request(server, "/strategies")[0].status == 404
    assert request(server, "/plan", Host="evil.example")[0].status == 403


def test_each_read_names_the_last_run(log):
    runs = []
    log.write_text("".join([*LINES, *LINES[:1]]))
    Server(str(log), on_run=runs.append).server_close()
    assert runs == [RECORDS[0]]


def test_sections_appear_in_a_browser_when_they_are_ready_and_others_stay(server, report, strategies, chromium):
    nasty = "<img src=x onerror=alert(1)>"
    planned, tab, errors = server.planned, chromium.new_page(), []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    ids = "all => all.map(each => each.id)"
    plan = planned.begin()
    planned.advance(plan, "auto", 1, 3)
    tab.goto(server.url)
    tab.wait_for_selector("#strategies progress")
    assert tab.eval_on_selector_all("main > section", ids) == ["training", "plan", "strategies"]
    assert "auto (2 of 3)" in tab.inner_text("#strategies")
    tab.evaluate("document.querySelector('#training').dataset.same = 1")
    planned.note(plan, nasty)
    planned.add(plan, "plan", json.dumps(plan_page(report)).encode())
    planned.add(plan, "strategies", json.dumps(strategies).encode())
    tab.wait_for_selector("#strategies table", timeout=10_000)
    shown = ["training", "plan", "arena", "net", "strategies", "costs"]
    assert tab.eval_on_selector_all("main > section", ids) == shown
    assert tab.locator("#training[data-same]").count() == 1 and nasty in tab.inner_text("#plan .note")
    planned.fail(planned.begin(), nasty)  # another run, whose files are gone
    tab.wait_for_selector("#plan .error", timeout=10_000)
    assert tab.inner_text("#plan .error") == nasty and tab.locator("img").count() == 0
    assert tab.eval_on_selector_all("main > section", ids) == ["training", "plan", "strategies"]
    assert tab.locator("#training .chart canvas").count() == 3
    tab.close()
    assert errors == []
