"""name_size_file: the sizes of the images of each batch, and the layer that reads them."""

import numpy as np
import pytest

from layermem.data.opening import open_feed
from layermem.data.sizes_feed import SizesFeed
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.proto.read import read_net_text

NET = """
    layer { name: "in" type: "Input" top: "loc" top: "conf" top: "prior" top: "label" input_param {
        shape { dim: 2 dim: 8 } shape { dim: 2 dim: 6 } shape { dim: 1 dim: 2 dim: 8 }
        shape { dim: 1 dim: 1 dim: 3 dim: 8 } } }
    layer { name: "out" type: "DetectionOutput" bottom: "loc" bottom: "conf" bottom: "prior" top: "out"
            detection_output_param { num_classes: 3 } }
    layer { name: "eval" type: "DetectionEvaluate" bottom: "%s" bottom: "label" top: "eval"
            detection_evaluate_param { num_classes: 3 name_size_file: "sizes.txt" %s } }
"""


def net(folder, more="", detections="out"):
    return Net(read_net_text(NET % (detections, more), str(folder / "net.prototxt")), 1)


def feed_of(folder, text, more=""):
    (folder / "sizes.txt").write_text(text)
    node = net(folder, more).nodes[2]
    return open_feed(node.layer.param, 1, 1, path=str(folder / "net.prototxt"))


def test_a_layer_before_it_reads_the_file_which_need_not_be_there_to_plan(tmp_path):
    nodes = net(tmp_path).nodes[2:]
    assert [(n.layer.name, n.layer.type, n.bottoms) for n in nodes] == [
        ("eval/sizes", "DetectionSizes", ()),
        ("eval", "DetectionEvaluate", ("out", "label", "eval/sizes")),
    ]
    assert nodes[0].layer.tops[0].shape == (2, 6)
    with pytest.raises(InputError, match="create it, or remove name_size_file"):
        open_feed(nodes[0].layer.param, 1, 1, path=str(tmp_path / "net.prototxt"))
    with pytest.raises(InputError, match="detections from a layer of type Input, which does not tell their images"):
        net(tmp_path, detections="prior")


def test_the_lines_are_those_of_successive_images_and_positions_are_kept(tmp_path):
    feed = feed_of(tmp_path, "a 10 20\nname with spaces 30 40\n\nc 50 60\n")
    assert isinstance(feed, SizesFeed)
    assert feed.next()[0].tolist() == [[0, 0, 1, 1, 20, 10], [0, 0, 1, 1, 40, 30]]
    state = feed.state()
    whole = feed.next()[0]
    assert whole[:, 4].tolist() == [60, 20]
    feed.check(state)
    feed.restore(state)
    np.testing.assert_array_equal(feed.next()[0], whole)


def test_resize_param_says_where_the_image_lies(tmp_path):
    more = "resize_param { height: 10 width: 10 resize_mode: %s }"
    text = "a 5 10\nb 10 5\n"
    rows = feed_of(tmp_path, text, more % "FIT_LARGE_SIZE_AND_PAD").next()[0]
    assert rows.tolist() == [[0, 0.25, 1, 0.75, 10, 5], [0.25, 0, 0.75, 1, 5, 10]]
    for mode in ("WARP", "FIT_SMALL_SIZE"):
        assert feed_of(tmp_path, text, more % mode).next()[0][:, :4].tolist() == [[0, 0, 1, 1]] * 2
    with pytest.raises(InputError, match="has height_scale and width_scale in its resize_param"):
        feed_of(tmp_path, text, more % "FIT_SMALL_SIZE height_scale: 3 width_scale: 3")


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "lists no sizes"),
        ("a 10\n", "height and a width"),
        ("a 0 5", "height"),
        ("a 10 5.5", "height"),
        ("a 99999999999 5", "height"),
    ],
)
def test_lines_without_a_size_are_refused(tmp_path, text, words):
    with pytest.raises(InputError, match=words):
        feed_of(tmp_path, text)
