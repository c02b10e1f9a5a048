"""The campaign of killed ranks detects wrong bits, jobs that continue, and exit codes; and it finds the ranks of a
job."""

import random
import subprocess
import sys

import pytest

from tools import crash_ranks
from tools.campaign.session import Campaign

WRITES = f"open('run_iter_{crash_ranks.LAST}.caffemodel', 'w').write('weights')"
CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)', 'layermem'])"


@pytest.fixture
def findings(tmp_path, monkeypatch, capsys):
    """The findings of the campaign if each job runs this program."""

    def run(program: str, expected: dict[str, bytes]) -> str:
        monkeypatch.setattr(crash_ranks, "start", lambda folder, size, plan: begin(program, folder))
        monkeypatch.setattr(crash_ranks.time, "sleep", lambda seconds: None)
        monkeypatch.setattr(crash_ranks, "LIMIT", 2)
        campaign = Campaign("crash_ranks", 0, 1, tmp_path / "found")
        crash_ranks.try_jobs(campaign, 0, tmp_path, expected, random.Random(1))
        campaign.finish()
        return capsys.readouterr().out

    return run


def begin(program: str, folder) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, start_new_session=True)


def test_the_same_bits_are_no_finding_and_others_are(findings):
    name = f"run_iter_{crash_ranks.LAST}.caffemodel"
    assert "1 trainings" in (said := findings(WRITES, {name: b"weights"})) and " 0 findings" in said
    assert "has other bits" in findings(WRITES, {name: b"others"})


def test_an_exit_code_of_a_job_that_was_left_alone_is_a_finding(findings):
    assert "exit code 3: said" in findings("import sys; sys.stderr.write('said'); sys.exit(3)", {})


def test_a_job_that_goes_on_is_ended_with_its_ranks(tmp_path):
    job = begin(CHILD, tmp_path)
    while not (ranks := crash_ranks.ranks_of(job.pid)):
        assert job.poll() is None
    assert len(ranks) == 1
    assert crash_ranks.finish(job, 0.1) == "no end in 0.1 s" and not crash_ranks.is_rank(ranks[0])
