"""The base of campaigns: printed seeds, inputs that depend only on them, and their number."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from layermem import _native as native
from tools.campaign.session import Campaign

ROOT = Path(__file__).resolve().parents[2]


def test_a_seed_that_is_not_given_is_new_and_printed_first(tmp_path, capsys):
    seeds = [Campaign("nets", 0, None, tmp_path).seed for _ in range(3)]
    assert capsys.readouterr().out.splitlines() == [f"nets: seed {seed}" for seed in seeds]
    assert len(set(seeds)) == 3


@pytest.mark.samples(4)
@pytest.mark.parametrize("tool", ["random_nets", "random_ranks", "fuzz", "crash"])
def test_the_seed_is_the_first_line_of_a_campaign_that_fails(tool, tmp_path):
    (tmp_path / "tmp").touch()  # no folder for temporary files
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import tempfile; tempfile.tempdir = {str(tmp_path / 'tmp')!r}\n"
            f"import sys; sys.argv = ['{tool}', '--count', '1', '--out', {str(tmp_path / 'out')!r}]\n"
            f"from tools.{tool} import main\nmain()",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ended.returncode and "Traceback" in ended.stderr
    name, _, seed = ended.stdout.splitlines()[0].partition(": seed ")
    assert name == tool and seed.isdigit()


def test_so_many_inputs_are_begun_however_long_they_take(tmp_path):
    first = [(index, rng.random()) for index, rng in Campaign("nets", 0, 7, tmp_path, count=5).inputs()]
    assert [index for index, _ in first] == [0, 1, 2, 3, 4]
    [again] = [(index, rng.random()) for index, rng in Campaign("nets", 0, 7, tmp_path, only=3).inputs()]
    assert again == first[3]


def test_one_input_is_begun_in_no_time(tmp_path):
    assert [index for index, _ in Campaign("nets", 0, 7, tmp_path).inputs()] == [0]


def test_make_check_runs_every_campaign_always_from_one_seed_and_make_campaign_from_new_ones():
    for goal, seeded in (("check", True), ("campaign", False)):
        done = subprocess.run(["make", "-n", goal], cwd=ROOT, capture_output=True, text=True, check=True)
        lines = [line for line in done.stdout.splitlines() if "--seconds" in line]
        tools = [line.split()[1] for line in lines]
        assert tools == [f"tools/{name}.py" for name in ("random_nets", "random_ranks", "fuzz", "crash")]
        assert [re.search(r"--seed \d+", line) is not None for line in lines] == [seeded] * 4


def test_another_build_of_the_native_module_is_loaded_where_it_is_named(tmp_path):
    """All of a campaign runs on the named build, as in `make sanitize`."""
    other = tmp_path / Path(native.__file__).name
    other.symlink_to(native.__file__)
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            "import tools.random_nets, layermem._native as n; print(n.__file__, n.cpu is tools.random_nets.cpu)",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "LAYERMEM_NATIVE_DIR": str(tmp_path)},
    )
    assert ended.stdout.split() == [str(other), "True"]
