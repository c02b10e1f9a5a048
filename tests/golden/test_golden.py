"""The schedules of six small nets equal the golden files; each file reads back as a safe schedule."""

from difflib import unified_diff

import pytest

from layermem.schedule.check import check
from layermem.schedule.text import parse, text
from tests.golden.schedules import CASES, FOLDER, NETS, file_of, schedule


@pytest.mark.parametrize(("net", "strategy"), CASES)
def test_the_schedule_is_the_golden_one(net, strategy):
    golden, now = file_of(net, strategy).read_text(), text(schedule(net, strategy))
    if now != golden:
        diff = unified_diff(golden.splitlines(), now.splitlines(), "golden", "now", lineterm="")
        pytest.fail("\n".join([*diff, "", "to accept this: python -m tests.golden.schedules"]), pytrace=False)


@pytest.mark.parametrize(("net", "strategy"), CASES)
def test_a_golden_schedule_reads_back_and_is_safe(net, strategy):
    made = schedule(net, strategy)
    read = parse(file_of(net, strategy).read_text(), made.graph, made.plan)
    assert read == made
    check(read)


def test_there_is_a_file_for_every_case_and_no_other():
    assert {path.name for path in FOLDER.glob("*.sched")} == {file_of(*case).name for case in CASES}
    assert {path.stem for path in FOLDER.glob("*.prototxt")} == set(NETS)
