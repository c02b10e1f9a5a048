"""Logs, read; the training that they describe."""

import pytest

from layermem.errors import InputError
from layermem.report.read_log import Curve, current_start, curves, last_training, read_records


def start(iteration=0, resumed_from=None):
    return {"event": "start", "format": 1, "iteration": iteration, "resumed_from": resumed_from}


def train(iteration, loss, **outputs):
    record = {"event": "train", "iteration": iteration, "loss": loss, "average_loss": loss, "learning_rate": 0.1}
    return record | {"outputs": outputs}


def test(iteration, **outputs):
    return {"event": "test", "iteration": iteration, "test_net": 0, "loss": None, "outputs": outputs}


test.__test__ = False


def test_a_resumed_run_replaces_the_iterations_that_it_makes_again():
    first = [start(), test(0, a=1), train(0, 1.0), train(1, 2.0), test(2, a=2), train(2, 3.0)]
    again = [start(2, "s"), test(2, a=20), train(2, 30.0)]
    assert last_training([*first, *again]) == [*first[:4], *again]


def test_a_new_run_replaces_all_before_it():
    assert last_training([start(), train(0, 1.0), start(), train(0, 2.0)]) == [start(), train(0, 2.0)]


def test_the_plan_of_now_is_that_of_the_last_change_of_the_budget():
    first, other = {**start(), "budget_bytes": 9, "seed": 1}, {"event": "budget", "iteration": 4, "budget_bytes": 5}
    now = current_start([first, train(3, 1.0), other, train(4, 1.0)])
    assert {name: now[name] for name in first} == {**first, "budget_bytes": 5}
    assert current_start([first, other, start(2, "s")]) == start(2, "s") and current_start([]) == {}


def test_curves_have_a_net_a_kind_and_a_name():
    shown = curves([start(), test(0, a=[1, 2]), train(0, 5.0, l=5.0), train(1, None, l=None), {"event": "other"}])
    assert [c for c in shown if c.kind != "average_loss"] == [
        Curve("train", "loss", "loss", (0, 1), (5.0, None)),
        Curve("train", "learning_rate", "learning_rate", (0, 1), (0.1, 0.1)),
        Curve("train", "output", "l", (0, 1), (5.0, None)),
        Curve("test 0", "output", "a[0]", (0,), (1.0,)),
        Curve("test 0", "output", "a[1]", (0,), (2.0,)),
    ]


HEADER = "event,iteration,seconds,loss,average_loss,learning_rate,test_net,details"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.jsonl", '{"event": "start", "format": 1}\nnot JSON\n', ":2: is not a record"),
        ("a.jsonl", '{"event": "train"}\n', ":1: is not a record"),
        ("a.jsonl", '{"event": "start", "format": 2}\n', "another version"),
        ("a.jsonl", "[1]\n", ":1: is not a record"),
        ("a.csv", "a,b\n", ":1: is not a record"),
        ("a.csv", f"{HEADER}\na,b\n", ":2: is not"),
        ("a.csv", f"{HEADER}\na,b,,,,,,\n", ":2: is not"),
        ("a.txt", "", "is not a log by its name"),
    ],
)
def test_text_that_is_no_log_is_refused_with_its_line(tmp_path, name, content, says):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(InputError) as refused:
        read_records(str(path))
    assert says in str(refused.value)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        read_records(str(tmp_path / "a.jsonl"))
