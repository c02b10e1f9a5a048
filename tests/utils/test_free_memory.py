import resource
import sys

import pytest

from layermem.utils import free_memory as module
from layermem.utils.free_memory import free_memory, memory_pressure

KIB, MIB = 2**10, 2**20


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A machine with 1,000 MiB free, whose process takes 100 MiB and is in no control group."""

    def write(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    monkeypatch.setattr(module, "PROC", tmp_path / "proc")
    monkeypatch.setattr(module, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY,) * 2)
    write("proc/meminfo", f"MemTotal: {2000 * KIB} kB\nMemAvailable:   {1000 * KIB} kB\n")
    write("proc/self/status", f"Name:\tpython\nVmSize:\t{100 * KIB} kB\n")
    return write


def test_without_limits_it_is_what_the_machine_has(system):
    assert free_memory() == (1000 * MIB, "free memory of this machine")


def group(system, folder, limit, use, unused, version=2):
    names = module.VERSIONS[2 - version]
    system(f"{folder}/{names[0]}", f"{limit}\n")
    system(f"{folder}/{names[1]}", f"{use}\n")
    system(f"{folder}/memory.stat", f"anon 5\n{names[2]} {unused}\n")


@pytest.mark.parametrize("version, listed, root", [(2, "0::/a/b\n", "groups"), (1, "3:memory:/a/b\n", "groups/memory")])
@pytest.mark.parametrize("where", ["", "/a", "/a/b"])
def test_the_limit_of_any_group_around_the_process_counts(system, version, listed, root, where):
    system("proc/self/cgroup", listed + "1:cpu:/other\n")
    group(system, f"{root}{where}", 700 * MIB, 300 * MIB, 50 * MIB, version)
    group(system, f"{root}/other", 1, 1, 0, version)
    assert free_memory() == (450 * MIB, "what the memory limit of this container leaves")


def test_a_limit_to_which_a_group_is_slowed_down_counts_and_may_be_below_what_is_in_use(system):
    system("proc/self/cgroup", "0::/a\n")
    group(system, "groups/a", "max", 300 * MIB, 50 * MIB)
    system("groups/a/memory.high", f"{400 * MIB}\n")
    assert free_memory().nbytes == 150 * MIB
    system("groups/a/memory.high", f"{200 * MIB}\n")
    assert free_memory().nbytes == -50 * MIB


def test_the_pressure_is_that_of_the_group_of_the_process(system):
    assert memory_pressure() == 0
    system("proc/self/cgroup", "0::/a/b\n")
    assert memory_pressure() == 0
    for folder, percent in (("a", "99.00"), ("a/b", "12.50")):
        line = f"avg10={percent} avg60=1.00 avg300=0.00 total=1"
        system(f"groups/{folder}/memory.pressure", f"some {line}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
    assert memory_pressure() == 12.5
    system("proc/self/cgroup", "3:memory:/a/b\n")
    assert memory_pressure() == 0


@pytest.mark.parametrize("limit", ["max", 2**63 - 4096])
def test_a_group_without_a_limit_leaves_what_the_machine_has(system, limit):
    system("proc/self/cgroup", "0::/\n")
    group(system, "groups", limit, 300 * MIB, 0)
    assert free_memory().nbytes == 1000 * MIB


def test_the_limit_of_the_process_counts(system, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (400 * MIB, 400 * MIB))
    assert free_memory() == (300 * MIB, "what the limit of this process leaves (ulimit -v)")


def test_a_system_that_says_nothing_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PROC", tmp_path)
    assert free_memory() is None


@pytest.mark.skipif(sys.platform != "linux", reason="/proc of Linux")
def test_this_machine_has_some():
    assert free_memory().nbytes > 0
