"""tools/dtr_log.py: a log of DTR becomes a graph whose peak and cost are those of the log."""

import json

import pytest

from layermem.integrations.graph_files.node_link import read_node_link, run_sequence
from tools import dtr_log

WARM_UP = [{"INSTRUCTION": "CONSTANT", "NAME": "w"}, {"INSTRUCTION": "MEMORY", "NAME": "w", "MEMORY": "999"}]
START = {"INSTRUCTION": "ANNOTATE", "ANNOTATION": "START"}


def constant(name, nbytes):
    return [{"INSTRUCTION": "CONSTANT", "NAME": name}, {"INSTRUCTION": "MEMORY", "NAME": name, "MEMORY": str(nbytes)}]


def call(name, arguments, time, **outputs):
    """Outputs by name: bytes, or -1 - the number of the argument whose bytes a view shares."""
    records = [{"INSTRUCTION": "CALL", "NAME": name, "ARGS": arguments, "RESULT": [*outputs], "TIME": str(time)}]
    for output, nbytes in outputs.items():
        records.append({"INSTRUCTION": "MEMORY", "NAME": output, "MEMORY": str(max(nbytes, 0))})
        records.append({"INSTRUCTION": "ALIAS", "NAME": output, "ALIAS": str(-1 if nbytes >= 0 else -1 - nbytes)})
    return records


@pytest.fixture
def converted(tmp_path, capsys):
    def convert(*records):
        log = tmp_path / "net.log"
        log.write_text("".join(json.dumps(each) + "\n" for each in records))
        dtr_log.main([str(log)])
        (tmp_path / "net.json").write_text(capsys.readouterr().out)
        return read_node_link(tmp_path / "net.json")

    return convert


def test_outputs_share_the_time_by_their_bytes_and_views_are_their_bases(converted):
    graph = converted(
        *WARM_UP,
        START,
        *constant("x", 10),
        *constant("w", 20),
        *call("conv", ["x", "w"], 100, y=30, saved=10),
        *call("view", ["y"], 7, v=-1),
        *call("relu", ["v"], 5, z=30),
        {"INSTRUCTION": "RELEASE", "NAME": "v"},
        {"INSTRUCTION": "RELEASE", "NAME": "y"},
        *call("loss", ["z", "saved"], 1, l=4),
        *({"INSTRUCTION": "RELEASE", "NAME": name} for name in ("z", "saved", "elsewhere")),
    )
    assert graph.bytes == (30, 30, 10, 30, 4, 0)  # constants, y, saved, z, l, end
    assert graph.cost == (0, 75, 25, 5, 1, 0)
    assert graph.reads == ((), (0,), (0,), (0, 1), (0, 2, 3), (0, 4))
    assert run_sequence(graph, graph.order) == (30 + 30 + 10 + 30, 106)


def test_a_mutation_makes_a_new_output_and_copies_are_names(converted):
    graph = converted(
        *constant("x", 6),
        *constant("w", 8),
        {"INSTRUCTION": "COPY", "DST": "p", "SRC": "w"},
        *call("mul", ["x"], 3, g=8),
        {"INSTRUCTION": "MUTATE", "NAME": "add_", "ARGS": ["p", "g"], "MUTATE": [0], "TIME": "2"},
        {"INSTRUCTION": "COPY_FROM", "DST": "w", "SRC": "p"},
    )
    assert graph.bytes == (14, 8, 8, 0) and graph.cost == (0, 3, 2, 0)
    assert graph.reads == ((), (0,), (0, 1), (0, 1, 2))
    with pytest.raises(ValueError, match="unknown instruction SWAP"):
        converted({"INSTRUCTION": "SWAP"})
