"""The step of a page, compared with its schedule."""

from itertools import accumulate

from layermem.integrations.page.columns import pack, unpack
from layermem.integrations.page.data import plan_page
from layermem.schedule.ir import STREAMS
from layermem.utils.units import aligned


def test_every_instruction_and_residency_of_the_schedule_is_in_the_data(report):
    schedule, arena = report.program.train, unpack(pack(plan_page(report)))["arena"]
    each, names = arena["instructions"], arena["names"]
    assert [names[i] for i in each["what"]] == [instruction.what for instruction in schedule.instructions]
    assert [STREAMS[i] for i in each["stream"]] == [instruction.stream for instruction in schedule.instructions]
    assert sum(each["recompute"]) == report.recomputed_ops > 0
    rows, buffers = arena["residencies"], arena["buffers"]
    begins = list(accumulate(rows["begin"]))
    found = {
        (names[buffers["name"][b]], begin, begin + ticks, offset * arena["align"], buffers["bytes"][b])
        for b, begin, ticks, offset in zip(rows["buffer"], begins, rows["ticks"], rows["offset"])
    }
    device = [r for r in schedule.residencies if not r.host]
    assert found == {(r.buffer, r.begin, r.end, r.offset, r.nbytes) for r in device}
    assert max(offset + aligned(nbytes) for *_, offset, nbytes in found) == arena["peak_bytes"] == schedule.peak_bytes


def test_slices_are_named_and_belong_to_the_layers_that_run_in_them(sliced):
    page = unpack(pack(plan_page(sliced)))
    arena, layers = page["arena"], page["net"]["layers"]["name"]
    assert ["slices", "conv1..pool1 in 2"] in page["facts"]
    each, buffers, names = arena["instructions"], arena["buffers"], arena["names"]
    instructions = [(names[what], layers[layer]) for what, layer in zip(each["what"], each["layer"])]
    assert [what for what, _ in instructions] == [i.what for i in sliced.program.train.instructions]
    in_slices = [(what, layer) for what, layer in instructions if "@" in what]
    assert len(in_slices) == 12 and all(what.startswith(f"{layer}.") for what, layer in in_slices)
    pieces = {
        names[name]: (shape, layers[layer])
        for name, shape, layer in zip(buffers["name"], (arena["shapes"][s] for s in buffers["shape"]), buffers["layer"])
    }
    assert pieces["conv1@1/2"] == pieces["conv1@2/2"] == ("2×4×6×5", "conv1") and "conv1" not in pieces
    assert pieces["pool1"] == ("4×4×3×3", "pool1")  # both slices write their half of it


def test_times_in_the_data_are_those_of_the_timeline(report):
    arena, timeline = plan_page(report)["arena"], report.timeline
    each, free = arena["instructions"], dict.fromkeys(range(len(STREAMS)), 0)
    for tick, (stream, wait, duration) in enumerate(zip(each["stream"], each["start"], each["duration"])):
        start = free[stream] + wait
        free[stream] = start + duration
        assert abs(start * arena["unit"] - timeline.start[tick]) <= arena["unit"]
        assert abs(free[stream] * arena["unit"] - timeline.end[tick]) <= arena["unit"]
