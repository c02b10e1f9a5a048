"""Files of one stem belong together: the record of an op, its kernels on every device, their C++ and CUDA sources."""

import ast
from pathlib import Path

import pytest

from layermem import ops

ROOT = Path(__file__).resolve().parents[2]
BACKENDS = ROOT / "layermem/backends"


def belongs(stem: str, family: str) -> bool:
    """Whether a file of this stem holds the family's kernels, or some of them: convolution, convolution_nd."""
    return stem == family or stem.startswith(f"{family}_")


def records(source: Path) -> set[str]:
    """Names of the records that `@kernel(Record, ..)` binds in a file."""
    functions = (node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.FunctionDef))
    calls = (each for function in functions for each in function.decorator_list if isinstance(each, ast.Call))
    return {ast.unparse(call.args[0]) for call in calls if ast.unparse(call.func) == "kernel"}


@pytest.mark.parametrize("device", ["reference", "cpu", "cuda"])
def test_kernels_are_in_the_file_of_their_records_stem(device):
    found = {(path.stem, record) for path in (BACKENDS / device).glob("*.py") for record in records(path)}
    assert len(found) > 50
    family = {record: getattr(ops, record).__module__.rpartition(".")[2] for _, record in found}
    assert not sorted((stem, record) for stem, record in found if not belongs(stem, family[record]))


@pytest.mark.parametrize("device", ["reference", "cpu", "cuda"])
def test_a_backend_has_files_of_families_beside_its_own_three(device):
    families = {path.stem for path in (ROOT / "layermem/ops").glob("*.py")}
    stems = {path.stem for path in (BACKENDS / device).glob("*.py")} - {"__init__", "base", "copy", "device"}
    assert len(stems) > 30
    assert not sorted(stem for stem in stems if not any(belongs(stem, family) for family in families))


def test_every_cuda_source_is_launched_by_a_module_of_its_stem():
    modules = {path.stem for path in (BACKENDS / "cuda").rglob("*.py")}
    sources = {path.stem for path in (ROOT / "cuda").glob("*.cu")}
    assert len(sources) > 30
    assert not sorted(stem for stem in sources if not any(belongs(stem, module) for module in modules))


# Parts of several families: products of matrices, channels that elements share, conversions, and the registry.
SHARED = {"channels", "copy", "depthwise", "half", "implicit_gemm", "registry", "winograd"}


def test_every_native_source_is_of_a_family_of_kernels():
    families = {path.stem for path in (BACKENDS / "cpu").glob("*.py")} - SHARED
    sources = {path.stem for path in (ROOT / "layermem/native/cpu/kernels").glob("*.cpp")}
    assert sources >= SHARED
    assert not sorted(stem for stem in sources - SHARED if not any(belongs(stem, family) for family in families))
