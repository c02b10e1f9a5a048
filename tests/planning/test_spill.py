"""The spill file as planning sees it: its file system, and costs with its rates."""

from dataclasses import replace

import pytest

from layermem.planning import spill
from layermem.planning.costs import model_costs, read_costs, write_costs
from layermem.planning.spill import Spill, file_system_of

FILE = Spill("out", "ext4 on /dev/sda1", 1.25e9, 2.5e9, "kept.csv")
MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 21 0:25 / {disk} rw - xfs /dev/nvme0n1 rw
31 30 0:26 / {disk}/a\\040b rw master:3 - tmpfs memory rw,size=4k
32 21 0:27 / {disk}x rw - btrfs /dev/sdb rw
"""


def test_a_spill_says_where_it_is_how_fast_and_where_its_rates_are_from():
    assert str(FILE) == (
        "a spill file in out (ext4 on /dev/sda1): writes 1.25 GB/s, reads 2.5 GB/s (measured; kept in kept.csv)"
    )
    assert "(measured on 2026-11-28, or again with --measure; kept in" in str(replace(FILE, measured_on="2026-11-28"))
    assert str(Spill("out", "ext4 on /dev/sda1", 1.25e9, 2.5e9)).endswith("(measured)")


def test_costs_with_a_spill_copy_at_its_rates():
    model = model_costs("cpu")
    costs = model.with_spill(FILE)
    launch = model.rates.launch
    assert costs.offload(1250) == pytest.approx(1e-6 + launch) and costs.prefetch(2500) == pytest.approx(1e-6 + launch)
    assert (costs.rates.flops, costs.spill) == (model.rates.flops, FILE) and model.with_spill(None) is model


def test_the_link_of_a_spill_file_is_not_that_of_memory(tmp_path):
    path = tmp_path / "costs.csv"
    path.write_text(write_costs({"a": 1.0}, d2h=5e8, h2d=6e8, spill="ext4 on /dev/sda1"))
    read = read_costs(path, "cpu")
    assert read.measured == {"a": 1.0} and read.rates == model_costs("cpu").rates
    path.write_text(write_costs({"a": 1.0}, d2h=5e8, h2d=6e8))
    assert (read_costs(path, "cpu").rates.d2h, read_costs(path, "cpu").rates.h2d) == (5e8, 6e8)


@pytest.mark.parametrize(
    ("folder", "name"), [("", "xfs on /dev/nvme0n1"), ("deep/er", "xfs on /dev/nvme0n1"), ("a b", "tmpfs on memory")]
)
def test_the_file_system_of_a_folder_is_the_last_mount_on_the_way_to_it(tmp_path, monkeypatch, folder, name):
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS.format(disk=tmp_path))
    monkeypatch.setattr(spill, "MOUNTS", mounts)
    found = file_system_of(tmp_path / folder)
    assert found.name == name and found.is_memory == name.startswith("tmpfs")


def test_folders_of_one_file_system_have_one_fingerprint(tmp_path):
    (tmp_path / "deeper").mkdir()
    assert file_system_of(tmp_path) == file_system_of(tmp_path / "deeper")


def test_a_system_that_lists_no_mounts_has_a_fingerprint_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(spill, "MOUNTS", tmp_path / "none")
    found = file_system_of(tmp_path)
    assert found.name == "file system" and len(found.fingerprint) == 16 and not found.is_memory


def test_a_spill_in_memory_is_warned_of():
    (warning,) = Spill("/dev/shm", "tmpfs on tmpfs", 1e9, 1e9, is_memory=True).warnings
    assert "a spill file there frees nothing" in warning and FILE.warnings == []
