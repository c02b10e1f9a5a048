"""A net as SVG."""

from xml.etree import ElementTree

import pytest

pytest.importorskip("igraph")

from layermem.api import plan
from layermem.graph import net as graph_net
from layermem.proto.read import read_net_text
from layermem.report.net_layout import arrange, text_width
from layermem.report.net_picture import net_picture
from layermem.report.net_svg import COLOURS, WIDER_FONT, svg_text
from tests.nets import NETS

SVG = "{http://www.w3.org/2000/svg}"


def svg_of(text: str, **options) -> str:
    picture = net_picture(plan(graph_net.Net(read_net_text(text), 0), **options))
    return svg_text(picture, arrange(picture))


def test_boxes_have_the_colours_of_their_decisions_and_a_tooltip():
    root = ElementTree.fromstring(svg_of(NETS["chain"]))
    boxes = [group for group in root.iter(f"{SVG}g") if group.find(f"{SVG}title") is not None]
    titles = [group.find(f"{SVG}title").text for group in boxes]
    assert any(title.startswith("conv1: Convolution 3x3, 4\nconv1_relu: ReLU\nblob conv1'") for title in titles)
    fills = {title.split(":")[0]: group.find(f"{SVG}rect").get("fill") for title, group in zip(titles, boxes)}
    assert fills["pool1"] == COLOURS["kept"][0] and fills["conv1"] == COLOURS["freed"][0]
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"conv1", "Convolution 3x3, 4", "4x4x6x5", "net x4 TRAIN"} <= set(texts)
    assert any(text.startswith("kept: ") for text in texts) and not any(text.startswith("recomputed") for text in texts)


@pytest.mark.parametrize("net", ["chain", "clip"])
def test_no_title_and_no_line_of_the_legend_is_cut(net):
    root = ElementTree.fromstring(svg_of(NETS[net]))
    ends = {text.text: float(text.get("x")) + WIDER_FONT * text_width(text.text) for text in root.findall(f"{SVG}text")}
    assert any(text.startswith("kept: ") for text in ends) and max(ends.values()) <= float(root.get("width"))


def test_names_are_escaped():
    text = svg_of(NETS["chain"].replace('name: "pool1"', 'name: "<script>alert(1)</script>&\\001\\""'))
    assert "<script" not in text and "\x01" not in text
    texts = [each.text for each in ElementTree.fromstring(text).iter(f"{SVG}text")]
    assert any(each.startswith("<script>alert(1)") for each in texts)


def test_the_same_plan_gives_the_same_bytes():
    assert svg_of(NETS["inception"]) == svg_of(NETS["inception"])
