"""Parts of buffers that slices of the batch touch; test_lower_sets.py and test_phases.py plan sliced nets with them."""

from layermem.planning.buffer_parts import BufferParts
from tests.planning.chains import UNIT, chain


def test_without_slices_a_buffer_is_one_part_that_its_op_writes():
    net = chain(2)
    parts = BufferParts(net)
    assert parts.named("x1", UNIT) == [("x1", UNIT)] and parts.orders() == []
    assert parts.writers["x1"] == ["f1.forward"]
    assert parts.read_by(net.by_name["f2.forward"]) == ["x1"]
    assert parts.written_by(net.by_name["f2.forward"]) == ["x2"]
    assert "f1.forward" not in [w for ws in BufferParts(net, {"f1.forward"}).writers.values() for w in ws]
