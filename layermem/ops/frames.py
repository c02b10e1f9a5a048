"""Frames: positions along the outer spatial axes of a blob that has more than two, numbered in C order.

Blobs hold the frames one after the other, each as the images of all items: [frames x items, C, H, W].  Each tap of a
window over the outer axes pairs a frame of the maps with a frame of the image.  The frames of an item lie apart, so a
slice of the batch is no range of such a blob (ops.Along).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from layermem.ops.base import TapRange, Window


@dataclass(frozen=True)
class FrameRun:
    """Neighbouring frames that meet under one tap of the outer axes.

    tap          its number in C order of the outer axes of the kernel
    maps, image  the first frame on either side
    count        number of consecutive frames on both sides
    first        whether no earlier run writes these frames; later runs add to them
    """

    tap: int
    maps: int
    image: int
    count: int
    first: bool


@dataclass(frozen=True)
class StridedRun:
    """`count` pairs of a tap, from frames `maps` and `image` on; the frames of either side are as many apart as its
    step."""

    maps: int
    image: int
    count: int = 1
    maps_step: int = 1
    image_step: int = 1


def image_frames(outer: Sequence[Window]) -> int:
    return prod(window.size for window in outer)


def maps_frames(outer: Sequence[Window]) -> int:
    return prod(window.floor_out for window in outer)


def outer_taps(outer: Sequence[Window]) -> int:
    return prod(window.kernel for window in outer)


def links(outer: Sequence[Window], tap: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs (frame of the maps, frame of the image) of a tap, in rising order."""
    maps, image, step_maps, step_image = [0], [0], 1, 1
    for window in reversed(outer):
        tap, place = divmod(tap, window.kernel)
        part = TapRange.of(window, place, window.floor_out)
        maps = [step_maps * (part.first + i) + o for i in range(part.count) for o in maps]
        image = [step_image * (part.start + i * window.stride) + o for i in range(part.count) for o in image]
        step_maps, step_image = step_maps * window.floor_out, step_image * window.size
    return zip(maps, image, strict=True)


def frame_runs(outer: Sequence[Window], written: Literal["maps", "image", "taps"]) -> list[FrameRun]:
    """Return the runs of all pairs, tap by tap; `first` refers to the written side: frames of maps or image, or
    taps."""
    runs: list[FrameRun] = []
    reached: set[int] = set()
    for tap in range(outer_taps(outer)):
        for maps, image in links(outer, tap):
            target = {"maps": maps, "image": image, "taps": tap}[written]
            first = target not in reached
            last = runs[-1] if runs else None
            if (
                last is not None
                and (last.tap, last.maps + last.count, last.image + last.count) == (tap, maps, image)
                and (written == "taps" or last.first == first)
            ):
                runs[-1] = replace(last, count=last.count + 1)
            else:
                runs.append(FrameRun(tap, maps, image, 1, first))
            reached.add(target)
    return runs


def strided_runs(outer: Sequence[Window], tap: int) -> list[StridedRun]:
    """Return the pairs of a tap as runs, in rising order: one run, where there is one outer axis."""
    runs: list[StridedRun] = []
    for maps, image in links(outer, tap):
        last = runs[-1] if runs else StridedRun(0, 0, 0)
        steps = ((maps - last.maps), (image - last.image))
        if last.count == 1:
            runs[-1] = StridedRun(last.maps, last.image, 2, *steps)
        elif last.count and steps == (last.count * last.maps_step, last.count * last.image_step):
            runs[-1] = replace(last, count=last.count + 1)
        else:
            runs.append(StridedRun(maps, image))
    return runs


def unreached_frames(outer: Sequence[Window], written: Literal["maps", "image"]) -> list[int]:
    """Return the frames of a side that no tap reaches; their sums are empty."""
    side = written == "image"
    reached = {link[side] for tap in range(outer_taps(outer)) for link in links(outer, tap)}
    frames = image_frames(outer) if side else maps_frames(outer)
    return [frame for frame in range(frames) if frame not in reached]
