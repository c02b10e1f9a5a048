"""Groups of C++ files that are compiled as one."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = runpy.run_path(str(ROOT / "tools" / "compile_native.py"))


def groups_of(folder: Path, texts: dict[str, str]) -> list[list[str]]:
    for name, text in texts.items():
        (folder / name).with_suffix(".cpp").write_text(f"namespace {{\n{text}\n}}  // namespace\n")
    return sorted([path.stem for path in group] for group in TOOL["group_files"](sorted(folder.glob("*.cpp"))))


@pytest.fixture(autouse=True)
def one_core(monkeypatch):
    monkeypatch.setenv("LAYERMEM_BUILD_JOBS", "1")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("constexpr int64_t kStep = 4;", "constexpr int64_t kStep = 8;"),
        ("constexpr int64_t kA = 1, kStep = 4;", "int f() { return kStep; }"),
        ("struct Item {\n    int a;\n};", "struct Item {\n    int b;\n};"),
        ("using Kernel = void (*)(int);", "Kernel* kernel;"),
        ("int64_t share(const A& a) {\n    return 1;\n}", "int64_t share(const A& a) {\n    return 2;\n}"),
        ("int64_t share(const A& a) {\n    return 1;\n}", "int g() { return share(3); }"),
    ],
)
def test_files_that_give_a_name_two_meanings_are_apart(tmp_path, first, second):
    assert groups_of(tmp_path, {"a": first, "b": second}) == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("constexpr int64_t kStep = 4;", "constexpr int64_t kStride = 8;"),
        ("void check(const A& a) {\n}", "void check(const B& b) {\n}"),  # overloads
        ("void check(const A& a) {\n}", "int f(const B& b) { return b.check(); }"),  # a member
        ("struct Item {\n    int a;\n};", "// an Item of another file"),
    ],
)
def test_other_files_are_compiled_as_one(tmp_path, first, second):
    assert groups_of(tmp_path, {"a": first, "b": second}) == [["a", "b"]]


def test_there_is_work_for_every_core(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERMEM_BUILD_JOBS", "8")
    texts = {f"f{i}": f"int f{i}() {{ return {i}; }}" for i in range(8)}
    assert len(groups_of(tmp_path, texts)) >= 4


def test_every_file_is_compiled_once_for_each_isa(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("LAYERMEM_ISAS", raising=False)
    sources = []
    for each in TOOL["kernel_compilations"]():
        if each.source.is_relative_to(TOOL["BUILD"]):
            sources += [line.split('"')[1] for line in each.source.read_text().splitlines()]
        else:
            sources.append(str(each.source.relative_to(TOOL["INCLUDE"])))
    isas = len(TOOL["ISA_FLAGS"])
    for path in sorted(TOOL["INCLUDE"].rglob("*.cpp")):
        name = str(path.relative_to(TOOL["INCLUDE"]))
        expected = 0 if TOOL["is_binding"](path) else isas if path.parent.name == "microkernels" else 1
        assert sources.count(name) == expected, name
