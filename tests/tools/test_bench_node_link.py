"""tools/bench_node_link.py: every sequence is run, and one over its budget is marked."""

import pytest

from tests.planning.graph_files.node_links import chain, chain_text
from tools import bench_node_link
from tools.bench_node_link import OVER, cells, layered_graph


def test_a_row_says_what_is_recomputed_and_what_cannot_be():
    graph = chain(16)
    recomputed, published, seconds = cells(graph, 80)
    assert float(recomputed) > 0 and published == "" and float(seconds) >= 0
    assert cells(graph, 100)[0] == "0.00" and cells(graph, 1)[0] == "least"


@pytest.mark.parametrize("sequence", [[*range(32)], [31]])
def test_a_sequence_that_takes_more_or_cannot_run_is_marked(monkeypatch, sequence):
    monkeypatch.setattr(bench_node_link, "plan_order", lambda graph, budget_bytes: sequence)
    assert cells(chain(16), 80)[0] == OVER


def test_the_graphs_of_a_folder_are_planned(monkeypatch, capsys, tmp_path):
    (tmp_path / "chain.json").write_text(chain_text(8))
    monkeypatch.setattr("sys.argv", ["bench_node_link.py", str(tmp_path), "--shares", "80"])
    assert bench_node_link.main() == 0
    assert capsys.readouterr().out.splitlines()[2].startswith("| chain8 | 16, ")


def test_a_layered_graph_is_the_same_for_a_seed():
    assert layered_graph(60, 1) == layered_graph(60, 1) != layered_graph(60, 2)
