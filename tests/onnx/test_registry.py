"""docs/onnx.md lists what the registry has."""

from pathlib import Path

from layermem.onnx.registry import EXPORTERS, REFUSED


def table() -> list[str]:
    """The layer types with the same operators in one row, then those that are refused."""
    rows: dict[str, list[str]] = {}
    for name, exporter in EXPORTERS.items():
        rows.setdefault(exporter.operators, []).append(name)
    refused: dict[str, list[str]] = {}
    for name, reason in REFUSED.items():
        refused.setdefault(reason, []).append(name)
    lines = [f"| {' '.join(sorted(names))} | {operators} |" for operators, names in rows.items()]
    return [
        *sorted(lines),
        *sorted(f"| {' '.join(sorted(names))} | refused: {why} |" for why, names in refused.items()),
    ]


def test_the_table_of_the_documentation_is_that_of_the_registry():
    text = Path("docs/onnx.md").read_text()
    shown = text.partition("| layer type | operators |\n|---|---|\n")[2].splitlines()
    assert shown[: len(table())] == table(), "\n" + "\n".join(table())
