"""docs/onnx.md lists the contents of the registries."""

from pathlib import Path

from layermem.integrations.onnx import importers as importers
from layermem.integrations.onnx.node import OPERATORS
from layermem.integrations.onnx.registry import EXPORTERS, REFUSED


def table() -> list[str]:
    """Rows of layer types with the same operators, then the refused types."""
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


def operator_table() -> list[str]:
    """Rows of operators that become the same layers."""
    rows: dict[str, list[str]] = {}
    for name, layers in OPERATORS.items():
        rows.setdefault(layers, []).append(name)
    return sorted(f"| {' '.join(sorted(names))} | {layers} |" for layers, names in rows.items())


def test_the_table_of_operators_is_that_of_the_importers():
    shown = Path("docs/onnx.md").read_text().partition("| operator | layers |\n|---|---|\n")[2].splitlines()
    assert shown[: len(operator_table())] == operator_table(), "\n" + "\n".join(operator_table())


def test_the_table_of_the_documentation_is_that_of_the_registry():
    text = Path("docs/onnx.md").read_text()
    shown = text.partition("| layer type | operators |\n|---|---|\n")[2].splitlines()
    assert shown[: len(table())] == table(), "\n" + "\n".join(table())
