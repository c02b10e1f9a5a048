"""The HTML for notebooks."""

from xml.etree import ElementTree

import layermem
from layermem.report.notebook import MAX_ROWS, net_html
from layermem.report.timeline_picture import arena_picture
from tests.nets import NETS


def parsed(html):
    return ElementTree.fromstring(f"<div>{html.replace('&#9632;', '#')}</div>")


def test_a_plan_is_a_table_and_its_arena():
    report = layermem.plan("prototxt/digits/train_val.prototxt", budget="60%")
    page = parsed(report._repr_html_())
    cells = [cell.text for cell in page.iter("td")]
    assert "peak" in cells and any(f"{report.peak_bytes:,} bytes" in cell for cell in cells)
    boxes = [each for each in page.iter() if each.tag.endswith("rect")]
    assert 10 < len(boxes) <= len(arena_picture(report).boxes)
    assert all(float(box.get("y")) >= 0 and float(box.get("width")) > 0 for box in boxes)
    names = " ".join(box[0].text for box in boxes)
    assert "conv1" in names and "ip1.w0" in names


def test_names_are_escaped_and_long_nets_are_cut():
    text = NETS["chain"].replace("conv1", "<script>")
    with layermem.Net.from_text(text) as net:
        assert "<script>" not in net._repr_html_() and "svg" not in net._repr_html_()
        net.forward()
        page = net._repr_html_()
        assert "&lt;script&gt;" in page and "<script>" not in page and "<svg" in page
    many = "".join(f'layer {{ name: "r{i}" type: "ReLU" bottom: "data" top: "data" }}' for i in range(MAX_ROWS + 5))
    long = layermem.Net.from_text(
        f'layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ dim: 1 }} }} }} {many}'
    )
    assert "... 6 more layers" in net_html(long.definition, None)


def test_the_nets_of_a_solver_show_its_arena(tmp_path):
    with layermem.Solver("prototxt/digits/solver.prototxt") as solver:
        assert "<svg" in solver.net._repr_html_()
