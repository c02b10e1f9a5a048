"""The contents of source archive, wheel and editable install (without the native module, which takes minutes)."""

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("pybind11")
ROOT = Path(__file__).resolve().parents[2]
BUILD = "import os, sys; from setuptools import build_meta as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"
IGNORED = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info", "build", ".*", "out")


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """A function from the kind of a package to its file, built from a copy of the tree."""
    folder = tmp_path_factory.mktemp("packages")
    copied = shutil.copytree(ROOT, folder / "tree", ignore=IGNORED)

    @cache
    def make(kind: str, tree: Path = copied) -> Path:
        words = [sys.executable, "-c", BUILD, f"build_{kind}", str(folder)]
        settings = {"PATH": "/usr/bin:/bin", "LAYERMEM_NATIVE": "0"}
        ended = subprocess.run(words, cwd=tree, env=settings, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        return folder / ended.stdout.splitlines()[-1]

    return make


def test_the_source_archive_holds_what_builds_runs_and_documents(build):
    with tarfile.open(build("sdist")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = (
        "setup.py",
        "LICENSE",
        "CHANGELOG.md",
        "layermem/native/bindings.cpp",
        "layermem/native/cpu/isa/simd.h",
        "cuda/convolution.cu",
        "layermem/proto/caffe.bin",
        "layermem/py.typed",
        "docs/glossary.md",
        "prototxt/digits/solver.prototxt",
        "prototxt/digits/digits_train_lmdb/data.mdb",
    )
    assert names >= set(wanted)
    assert not [name for name in names if name.startswith("tests") or name.endswith((".pyc", ".so", "lock.mdb"))]


@pytest.mark.whole
def test_the_wheel_from_the_source_archive_holds_what_the_package_reads_and_no_tests(build, tmp_path):
    with tarfile.open(build("sdist")) as archive:
        archive.extractall(tmp_path, filter="data")
    with zipfile.ZipFile(build("wheel", next(tmp_path.iterdir()))) as wheel:
        names = set(wheel.namelist())
        metadata = wheel.read("layermem-0.1.0.dist-info/METADATA").decode()
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "layermem").rglob("*.py")}
    nets = {
        f"layermem/example_nets/{path.relative_to(ROOT / 'prototxt')}" for path in ROOT.glob("prototxt/*/*.prototxt")
    }
    pages = {f"layermem/pages/{path.relative_to(ROOT / 'docs')}" for path in ROOT.glob("docs/**/*.md")}
    assert names >= modules | nets | pages | {
        "layermem/proto/caffe.bin",
        "layermem/py.typed",
        "layermem/cuda_kernels/convolution.cu",
        "layermem/native/cpu/kernels/convolution.h",
        "layermem/native/cpu/microkernels/conv_problem.h",
        "layermem/example_nets/README.md",
        "layermem/example_nets/digits/digits_train_lmdb/data.mdb",
        "layermem/example_nets/python_layers/losses.py",
    }
    assert not [name for name in names if name.endswith((".cpp", "lock.mdb", ".pyc"))]
    assert {name.split("/")[0] for name in names} == {"layermem", "layermem-0.1.0.dist-info"}
    # A package index shows the README, where a link to another page of this repository leads nowhere.
    assert "\n# layermem\n" in metadata and not re.search(r"\]\((?!https?:)", metadata)
    assert "docs/architecture.md follows" in metadata


def test_an_editable_install_is_found_beside_a_folder_of_its_name(build):
    with zipfile.ZipFile(build("editable")) as wheel:
        names = wheel.namelist()
        (link,) = [name for name in names if name.endswith(".pth")]
        assert Path(wheel.read(link).decode().strip()).joinpath("layermem/__init__.py").is_file()  # a path, no finder
        assert not [name for name in names if name.endswith(".py")]
