"""Drawing a net to a file."""

import sys

import pytest

pytest.importorskip("igraph")

from layermem.api import plan
from layermem.errors import InputError
from layermem.graph import net as graph_net
from layermem.proto.read import read_net_text
from layermem.report.drawing import check_drawing, draw_net
from tests.nets import NETS


def test_a_net_is_drawn_to_a_file(tmp_path):
    report = plan(graph_net.Net(read_net_text(NETS["chain"]), 0))
    path = tmp_path / "net.svg"
    for rankdir in ("TB", "LR"):
        draw_net(report, str(path), rankdir=rankdir, fold=True)
        assert path.read_text().startswith("<svg ") and path.read_text().endswith("</svg>\n")
    with pytest.raises(InputError, match=r"unknown rankdir 'BT' \(choose from TB, LR\)"):
        draw_net(report, str(path), rankdir="BT")


@pytest.mark.parametrize("name", ["net.png", "net.pdf", "net"])
def test_other_files_are_refused(name):
    with pytest.raises(InputError, match=r"is no name of an SVG file; use a name that ends in \.svg"):
        check_drawing(name)


def test_a_missing_library_is_refused_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "igraph", None)
    with pytest.raises(InputError, match=r"needs igraph; install it: pip install 'layermem\[plot\]'"):
        check_drawing("net.svg")
