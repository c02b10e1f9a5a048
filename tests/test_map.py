"""The package map: imports point one way, dynamic and TYPE_CHECKING ones included, and no modules form a circle.

Tests mirror the package: those of layermem/a/b.py are in tests/a/test_b.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "layermem"
NATIVE = PACKAGE / "native"
TESTS = Path(__file__).parent

# From the bottom up: a package may import those before it.  Packages of one row do not import each other.
LAYERS = (
    {"errors", "_native"},
    {"utils", "nets"},
    {"proto", "distributed"},
    {"ops", "python_layers"},
    {"layers"},
    {"spec"},
    {"graph"},
    {"planning"},
    {"schedule"},
    {"pipeline"},
    {"report"},
    {"backends", "data"},
    {"runtime", "io"},
    {"solver"},
    {"interactive"},
    {"api"},
    {"integrations"},
    {"onnx", "cli", "caffe"},
    {"__init__", "__main__"},
)
# Modules of planning that make programs: they use what schedules and checks a plan.
PIPELINE = {"budget_search", "fusion_search", "job", "joined_updates", "kept_plans", "pipeline", "slice_search"}
LEVEL = {package: level for level, packages in enumerate(LAYERS) for package in packages}
FILES = sorted(PACKAGE.rglob("*.py"))
# Names that are only known at run time; each reads modules of its own package.
DISCOVERY = {
    "python_layers/loading.py": "modules of users, by name, where they allow it",
    "python_layers/answering.py": "layermem.caffe, which answers `import caffe`",
    "backends/base.py": "layermem.backends",
    "caffe/__init__.py": "layermem.caffe, name by name",
    "backends/cpu/__init__.py": "layermem.backends.cpu",
    "backends/cuda/__init__.py": "layermem.backends.cuda",
    "backends/reference/__init__.py": "layermem.backends.reference",
    "data/database.py": "layermem.data",
    "data/opening.py": "layermem.data",
    "layers/__init__.py": "layermem.layers",
    "planning/strategies/__init__.py": "layermem.planning.strategies",
}
USERS_MODULES = ("python_layers/loading.py", "python_layers/answering.py")  # modules of users, and `import caffe`
PUBLIC = {"api", "caffe", "interactive", "io", "spec"}  # layermem/__init__.py imports these on first use


def package_of(file: Path) -> str:
    return package_named(module_name(file))


def package_named(module: str) -> str:
    """The package of a module on the map: "planning" of layermem.planning.plan."""
    package, _, rest = module.partition(".")[2].partition(".")
    return "pipeline" if package == "planning" and rest in PIPELINE else package or "__init__"


@cache
def imports_of(source: str) -> tuple[ast.AST, ...]:
    """The import statements of a source, and its calls of `import_module`."""
    kinds = ast.Import, ast.ImportFrom, ast.Call
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    return tuple(node for node in nodes if not isinstance(node, ast.Call) or _imports(node.func))


def _imports(function: ast.expr) -> bool:
    name = getattr(function, "attr", getattr(function, "id", ""))
    return name.endswith(("import_module", "__import__"))


def imported_modules(source: str) -> Iterator[tuple[str, int]]:
    """Yield each module that an import statement names, with its line; `from layermem import x` names layermem.x."""
    for node in imports_of(source):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"line {node.lineno}: a relative import"
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "layermem" else [node.module]
            )
            yield from ((name, node.lineno) for name in names)
        elif isinstance(node, ast.Call):
            argument = node.args[0]
            name = argument.value if isinstance(argument, ast.Constant) else f"dynamic:{ast.unparse(argument)}"
            yield str(name), node.lineno


def imported_packages(source: str) -> Iterator[tuple[str, int]]:
    for module, line in imported_modules(source):
        package, _, rest = module.partition(".")
        if package == "layermem" and rest and not rest.startswith("__version__"):
            yield package_named(module), line


def module_name(file: Path) -> str:
    parts = ("layermem", *file.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_every_package_is_on_the_map():
    assert {package_of(file) for file in FILES} | {"_native"} == set(LEVEL)


@pytest.mark.parametrize("package", sorted({package_of(file) for file in FILES}))
def test_imports_point_one_way(package):
    for file in FILES:
        if package_of(file) != package:
            continue
        for imported, line in imported_packages(file.read_text()):
            allowed = imported == package or LEVEL[imported] < LEVEL[package] or file.name == "__init__.py" == package
            assert allowed, f"{file.relative_to(PACKAGE)}:{line}: {package} imports {imported}"


def test_dynamic_imports_are_discovery_in_their_own_package():
    for file in FILES:
        name, source = str(file.relative_to(PACKAGE)), file.read_text()
        dynamic = [module for module, _ in imported_modules(source) if module.startswith("dynamic:")]
        assert not dynamic or name in DISCOVERY, f"{name} imports {dynamic[0]}"
        assert name in USERS_MODULES or "sys.modules" not in source, f"{name} replaces a module"


def test_no_modules_form_a_circle():
    """Imports inside functions and under TYPE_CHECKING count too."""
    names = {module_name(file): file for file in FILES}
    graph: dict[str, set[str]] = {name: set() for name in names}
    for name, file in names.items():
        if name == "layermem":
            continue
        for node in imports_of(file.read_text()):
            if isinstance(node, ast.ImportFrom) and node.module and node.module in names:
                members = {f"{node.module}.{alias.name}" for alias in node.names}
                graph[name] |= (members & names.keys()) or {node.module}
    finished: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name not in finished:
            for other in sorted(graph[name] - {"layermem", name}):
                visit(other, (*path, name))
            finished.add(name)

    for name in graph:
        visit(name, ())


def test_a_wrong_import_is_seen():
    assert list(imported_packages("import numpy\ndef f():\n    from layermem.cli import main")) == [("cli", 3)]
    assert list(imported_packages("from layermem import cli, errors")) == [("cli", 1), ("errors", 1)]
    assert list(imported_packages("if TYPE_CHECKING:\n    from layermem import cli")) == [("cli", 2)]
    assert list(imported_packages("import_module('layermem.api')")) == [("api", 1)]
    assert list(imported_modules("import_module(name)")) == [("dynamic:name", 1)]


def test_one_file_imports_pycuda():
    files = [file for file in FILES if any(name.startswith("pycuda") for name, _ in imported_modules(file.read_text()))]
    assert [str(file.relative_to(PACKAGE)) for file in files] == ["backends/cuda/driver/context.py"]


def test_the_architecture_shows_the_packages_in_this_order():
    text = (PACKAGE.parent / "docs/architecture.md").read_text()
    table = text.partition("## Packages")[2].partition("## Imports")[0]
    rows = re.findall(r"^\| ((?:`[\w/.]+`(?:, )?)+) \|", table, re.MULTILINE)
    shown = [name.removesuffix(".py") for row in rows for name in re.findall(r"`([\w.]+)/?`", row)]
    levels = [LEVEL[name] for name in shown if name in LEVEL]
    assert levels == sorted(levels)
    assert {"proto", "ops", "layers", "graph", "planning", "schedule", "backends", "solver"} <= set(shown)


@pytest.mark.parametrize("half, other", [("planning", "cpu"), ("cpu", "planning")])
def test_native_planning_and_native_kernels_do_not_meet(half, other):
    for file in [*(NATIVE / half).rglob("*.cpp"), *(NATIVE / half).rglob("*.h")]:
        assert not re.search(rf'#include\s+"[^"]*\b{other}/', file.read_text()), file.name


# -- tests mirror modules ------------------------------------------------------------------------------------------

# Modules without a test file of their own name, as patterns, with the tests that cover them.
TESTED_ELSEWHERE = {
    "__main__.py": ("cli/test_main.py", "the command in one line"),
    "backends/cpu/*.py": ("backends/test_cpu.py", "every case and record, against the reference"),
    "backends/cpu/support/*.py": ("backends/test_cpu.py", "parts of its kernels"),
    "backends/cuda/*.py": ("backends/cuda/test_every_kernel.py", "every case and record, against the reference"),
    "backends/cuda/checks/*.py": ("backends/cuda/test_selftest.py", "the check of a GPU, by whole runs of it"),
    "backends/cuda/products/*.py": (
        "backends/cuda/test_every_kernel.py",
        "every case and record, against the reference",
    ),
    "backends/cuda/support/*.py": (
        "backends/cuda/test_every_kernel.py",
        "every case and record, against the reference",
    ),
    "backends/cuda/driver/*.py": ("emulator/test_fake_driver.py", "whole steps on a driver that checks its calls"),
    "backends/cuda/kernel_images/*.py": ("backends/cuda/test_build.py", "one thing: compiled images of kernels"),
    "backends/reference/support/*.py": ("layers/", "parts of its kernels"),
    "backends/reference/*.py": ("layers/", "the oracle of other backends: each family against formulas and Caffe"),
    "caffe/__main__.py": ("caffe/test_scripts.py", "every script of it is run by it"),
    "caffe/_caffe.py": ("caffe/test_names.py", "names"),
    "caffe/classifier.py": ("caffe/test_names.py", "names"),
    "caffe/detector.py": ("caffe/test_names.py", "names"),
    "caffe/pycaffe.py": ("caffe/test_names.py", "names"),
    "report/net_image.py": ("caffe/test_draw.py", "pictures of nets without a plan"),
    "caffe/io.py": ("caffe/test_names.py", "names"),
    "caffe/net_spec.py": ("caffe/test_names.py", "names"),
    "cli/caffe_tools/program.py": ("cli/test_caffe.py", "what every program has"),
    "interactive/images.py": ("interactive/test_classifier.py", "what Classifier and Detector share"),
    "data/layer_files.py": ("data/test_opening.py", "errors of files that are not there, for each type of layer"),
    "data/datum_source.py": ("data/test_database.py", "what kinds of databases share, by each of them"),
    "interactive/blob.py": ("interactive/test_net.py", "what a net shows of its blobs"),
    "interactive/fed_net.py": ("interactive/test_passes.py", "arrays that passes read"),
    "interactive/inputs.py": ("interactive/test_net.py", "arrays that a net is given"),
    "interactive/session.py": ("interactive/test_net.py", "the programs of a net, by what it computes"),
    "interactive/solver_net.py": ("interactive/test_solver.py", "the nets of a solver"),
    "layers/given_arrays.py": ("data/test_given.py", "arrays in place of data: which layers read them, and how"),
    "layers/lrn.py": ("layers/test_normalization.py", "with BatchNorm: overlays and refusals"),
    "layers/scale.py": ("layers/test_normalization.py", "with BatchNorm, likewise"),
    "layers/base.py": ("test_cases.py", "what every layer promises, case by case"),
    "nets/*.py": ("prototxt/", "the generators, by the nets that they write"),
    "integrations/onnx/exporters/*.py": ("integrations/onnx/test_exporting.py", "every layer type, in ONNX Runtime"),
    "integrations/onnx/graph.py": ("integrations/onnx/test_exporting.py", "what exporters write with"),
    "integrations/onnx/importers/*.py": ("integrations/onnx/test_importing.py", "every operator, in ONNX Runtime"),
    "integrations/onnx/net_writer.py": ("integrations/onnx/test_importing.py", "what importers write with"),
    "integrations/onnx/node.py": ("integrations/onnx/test_importing.py", "what importers read with"),
    "integrations/onnx/library.py": ("integrations/onnx/test_exporting.py", "the import of onnx"),
    "solver/progress.py": ("solver/test_snapshot.py", "what a snapshot holds"),
    "solver/run_options.py": ("interactive/test_solver.py", "keywords of layermem.Solver"),
    "onnx.py": ("integrations/onnx/test_exporting.py", "public names"),
    "ops/*.py": ("ops/test_records.py", "records are values: all of them in one table"),
    "report/curves_*.py": ("integrations/page/test_curves.py", "one thing: the plot and what it shows"),
    "distributed/transport.py": ("distributed/test_loopback.py", "declarations alone"),
    "runtime/held.py": ("interactive/test_solver.py", "what a user reads after a step"),
    "solver/callbacks.py": ("interactive/test_solver.py", "callbacks of a run"),
    "report/events.py": ("report/test_log.py", "declarations alone"),
    "graph/device.py": ("backends/test_base.py", "declarations alone"),
    "data/open_databases.py": ("data/test_lmdb_database.py", "what readers of a file share"),
    "report/timeline_image.py": ("integrations/page/test_timeline.py", "paints what test_timeline.py tests"),
    "report/timeline_picture.py": ("integrations/page/test_timeline.py", "the content of the plots that it draws"),
}


def mirror_of(name: str) -> Path:
    """The path of the tests of a module."""
    module = Path(name)
    return TESTS / module.parent / f"test_{module.name}"


def fnmatch_in_folder(name: str, pattern: str) -> bool:
    """Whether `pattern` names a module; `*` stands for no slash."""
    return name.count("/") == pattern.count("/") and fnmatch(name, pattern)


def test_every_module_has_a_test_file_in_its_place_or_a_reason():
    modules = [file.relative_to(PACKAGE).as_posix() for file in FILES if file.name != "__init__.py"]
    untested = [name for name in modules if not mirror_of(name).exists()]
    unexplained = [name for name in untested if not any(fnmatch_in_folder(name, each) for each in TESTED_ELSEWHERE)]
    assert not unexplained, f"no {', '.join(str(mirror_of(name).relative_to(TESTS)) for name in unexplained)}"


@pytest.mark.parametrize("pattern", TESTED_ELSEWHERE)
def test_an_explained_module_is_there_untested_and_its_tests_are_there(pattern):
    modules = [file.relative_to(PACKAGE).as_posix() for file in FILES if file.name != "__init__.py"]
    assert any(fnmatch_in_folder(name, pattern) and not mirror_of(name).exists() for name in modules), "needs no reason"
    assert (TESTS / TESTED_ELSEWHERE[pattern][0]).exists()
