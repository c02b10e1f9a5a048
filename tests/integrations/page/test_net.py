"""The net of a page: edges, and the layer of every op and parameter."""

from itertools import accumulate

from layermem.graph.ops import UPDATE
from layermem.integrations.page.data import plan_page
from layermem.integrations.page.net import LayerIndex


def test_every_layer_has_its_edges_and_every_op_its_layer(report):
    page, net, graph = plan_page(report), report.job.nets[0], report.job.graphs[0]
    section = page["net"]
    assert section["layers"]["name"] == [layer.name for layer in net.layers]
    starts = list(accumulate(section["edges"]["from"]))
    pairs = {(a, a + distance) for a, distance in zip(starts, section["edges"]["to"])}
    for i, layer in enumerate(net.layers):
        makers = {j for j, other in enumerate(net.layers) if set(other.tops) & set(layer.bottoms)}
        assert {a for a, b in pairs if b == i} == makers - {i}
    index = LayerIndex(net, graph)
    for op in graph.ops:
        layer = index.of_op(op)
        assert not op.layers or op.layers[0] in [node.layer.name for node in net.layers[layer].nodes]
        if op.kind == UPDATE:
            assert layer >= 0
    for name, param in net.params.items():
        assert net.layers[index.of_buffer(name)].name == param.layer
