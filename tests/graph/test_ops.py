"""Ops over named buffers: uses, producers, readers, and the fingerprint of a graph."""

from dataclasses import replace

from layermem.graph.ops import BACKWARD, FORWARD, UPDATE, Buffer, Graph, Op, Use, unique, uses_of
from layermem.ops import Kind, Pointwise, Silence, Tensor

X = Tensor((8,))
RELU = Pointwise(Kind.RELU, X)


def op(name: str, kind: str = FORWARD, reads=(), writes=(), updates=(), **more) -> Op:
    return Op(name, kind, Silence(), "forward", {}, tuple(reads), tuple(writes), tuple(updates), **more)


#              a      b      c           d
#   x          w      r      r
#   y                 w      u           r
OPS = (
    op("a", writes=["x"]),
    op("b", reads=["x"], writes=["y"]),
    op("c", BACKWARD, reads=["x"], updates=["y"]),
    op("d", UPDATE, reads=["y"]),
)
BUFFERS = {name: Buffer(name, "data", X, 32) for name in ("x", "y")}
GRAPH = Graph("two ops", BUFFERS, OPS, "reference")


def test_uses_say_where_a_buffer_is_read_and_written():
    assert uses_of(OPS) == {
        "x": [Use(0, False, True), Use(1, True, False), Use(2, True, False)],
        "y": [Use(1, False, True), Use(2, True, True), Use(3, True, False)],
    }
    assert GRAPH.uses == uses_of(OPS)


def test_the_producer_writes_first_and_readers_come_in_order():
    assert {name: producer.name for name, producer in GRAPH.producer.items()} == {"x": "a", "y": "b"}
    assert {name: [o.name for o in readers] for name, readers in GRAPH.readers.items()} == {
        "x": ["b", "c"],
        "y": ["c", "d"],
    }


def test_ops_are_found_by_name_position_and_kind():
    assert GRAPH.by_name["c"] is OPS[2] and GRAPH.position["d"] == 3
    assert [o.name for o in GRAPH.of_kind(FORWARD)] == ["a", "b"]
    assert OPS[2].touches == ("x", "y")


def test_a_kernel_is_named_by_record_and_step():
    assert replace(OPS[0], record=RELU, step="backward").kernel == "Pointwise.backward"


def test_the_fingerprint_changes_with_ops_bytes_and_device_only():
    def fingerprint(**changes) -> str:
        return replace(GRAPH, **changes).fingerprint

    one = fingerprint()
    assert fingerprint(name="other", warnings=("w",)) == one
    assert fingerprint(device="cpu") != one
    assert fingerprint(buffers={**BUFFERS, "x": replace(BUFFERS["x"], nbytes=64)}) != one
    assert fingerprint(ops=(*OPS[:3], replace(OPS[3], workspace_bytes=256))) != one
    assert fingerprint(ops=(replace(OPS[0], layer_type="Sigmoid"), *OPS[1:])) != one


def test_a_fused_update_replaces_the_ops_that_it_covers():
    fused = op("f", BACKWARD, reads=["x"], covers=("c", "d"))
    graph = replace(GRAPH, fused_updates=(fused,))
    assert [o.name for o in graph.with_fused_updates(frozenset({"f"})).ops] == ["a", "b", "f"]
    assert graph.by_name["f"] is fused and graph.with_fused_updates(frozenset()) is graph


def test_unique_keeps_the_first_of_equal_names():
    assert unique(["b", "a", "b", "c", "a"]) == ("b", "a", "c")
