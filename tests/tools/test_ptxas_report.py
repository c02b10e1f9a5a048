"""The report of ptxas is made module by module: what is written of it, in which order, and what compilations share."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from layermem.backends.cuda.kernel_images.build import whole_source
from layermem.backends.cuda.kernel_images.toolkit import program
from tools import ptxas_report
from tools.ptxas_report import ALIKE, ARCHITECTURES, Kernel, compile_all, digest_of, read_report, sets_of, update

SMALL = ["communication", "fill"]


def kernels(spilled: int = 0) -> list[Kernel]:
    return [Kernel("first", 128, 2, 0, 32, 0), Kernel("second", 256, 1, 16, 64, spilled)]


def compile(module: str, alike: Sequence[str]) -> dict[str, list[Kernel]]:
    return {a: kernels(24 if (module, a) == ("fill", "90") else 0) for a in alike}


def test_sets_have_every_architecture_once():
    assert tuple(a for alike in ALIKE for a in alike) == ARCHITECTURES


def test_a_source_that_distinguishes_architectures_is_made_for_each():
    assert sets_of("") == sets_of("LM_ARCH >= 800 || LM_ARCH >= 900 || LM_ARCH >= 1000") == list(ALIKE)
    assert sets_of("#if __CUDA_ARCH__ >= 890") == [("75",), ("80",), ("86",), ("89",), ("90",), ("100", "120")]
    assert ("100",) in sets_of("LM_ARCH == 1200") and ("80", "86", "89") in sets_of("LM_ARCH == 1200")


def test_the_longest_sources_are_compiled_first():
    asked = []

    def compile_in_order(module: str, alike: Sequence[str]) -> dict[str, list[Kernel]]:
        asked.append(module)
        return compile(module, alike)

    found = dict(compile_all(["fill", "pooling", "communication"], compile_in_order, 1))
    assert found.keys() == {"fill", "pooling", "communication"}
    lengths = [len(whole_source(module)) for module in asked]
    assert lengths == sorted(lengths, reverse=True)


def test_each_module_is_written_and_its_spills_printed_when_it_is_done(tmp_path, capsys):
    path = tmp_path / "ptxas.tsv"
    assert update(SMALL, compile, "ptxas 1", path) == (4, ["fill second spills 24 bytes on sm_90"])
    digests, rows = read_report(path)
    assert digests == {module: digest_of(module) for module in SMALL}
    assert {(row.module, row.name) for row in rows} == {(m, n) for m in SMALL for n in ("first", "second")}
    assert next(row for row in rows if row.spilled["90"]).spilled == dict.fromkeys(ARCHITECTURES, 0) | {"90": 24}
    assert "fill second spills 24 bytes on sm_90\n" in capsys.readouterr().out


def test_an_interrupted_run_keeps_what_it_has(tmp_path):
    path, begun = tmp_path / "ptxas.tsv", threading.Event()

    def interrupted(module: str, alike: Sequence[str]) -> dict[str, list[Kernel]]:
        if module == first:
            return compile(module, alike)
        begun.set()
        raise KeyboardInterrupt

    first = max(SMALL, key=lambda module: len(whole_source(module)))
    with pytest.raises(KeyboardInterrupt):
        update(SMALL, interrupted, "ptxas 1", path)
    assert begun.is_set() and read_report(path)[0] == {first: digest_of(first)}
    update([module for module in SMALL if module != first], compile, "ptxas 1", path)
    assert read_report(path)[0].keys() == set(SMALL)


def test_kernels_are_found_by_names_and_patterns():
    _, rows = read_report()
    found = ptxas_report.modules_with(["pool_max_forward_v4", "fill*"], rows)
    assert found["pooling"] == ["pool_max_forward_v4"] and "fill" in found
    with pytest.raises(SystemExit, match="no module or kernel of the table is named none"):
        ptxas_report.modules_with(["none"], rows)


@pytest.mark.skipif(
    not (program("nvcc") and program("ptxas")), reason="nvcc and ptxas are not here: pip install nvidia-cuda-nvcc"
)
def test_what_architectures_share_is_what_each_of_them_has():
    alike = ("80", "86")
    found = ptxas_report.compiled_alike("communication", alike)
    assert found == {a: ptxas_report.compiled("communication", a) for a in alike}
    assert all(found.values())
