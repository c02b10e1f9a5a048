"""Augmentation of AnnotatedData before an image is resized; random numbers depend on the sample.

    distort   changes brightness, contrast, saturation, hue and the order of channels, each with its own probability
    expand    puts the image on a larger canvas of mean values
    sample    cuts out a window whose overlaps with the boxes meet a constraint

Images are uint8 [C,H,W] in the order blue, green, red; colours are converted with the integer arithmetic of OpenCV.
source  im_transforms.cpp, data_transformer.cpp (ExpandImage, CropImage) and sampler.cpp of the SSD fork of Caffe
"""

from __future__ import annotations

import numpy as np

from layermem.data.boxes import CORNERS, Boxes, Window, area, common, overlap, part, seen_through
from layermem.data.resampling import saturated
from layermem.proto.schema import Message

LEAST_CHANGE = 1e-3  # factors nearer to 1 change nothing
LEAST_EXPANSION = 1e-2
HUES = 180  # number of hues in OpenCV's 8-bit images
SHIFT = 12  # fraction bits of OpenCV's table of reciprocals

Random = np.random.Generator


# -- colours -----------------------------------------------------------------------------------------------------------


def distort(image: np.ndarray, p: Message, rng: Random) -> np.ndarray:
    steps = [brightness, contrast, saturation, hue] if rng.random() > 0.5 else [brightness, saturation, hue, contrast]
    for step in (*steps, channel_order):
        image = step(image, p, rng)
    return image


def brightness(image: np.ndarray, p: Message, rng: Random) -> np.ndarray:
    happens, delta = rng.random() < p.brightness_prob, rng.uniform(-p.brightness_delta, p.brightness_delta)
    return saturated(image + np.float32(delta)) if happens else image


def contrast(image: np.ndarray, p: Message, rng: Random) -> np.ndarray:
    happens, factor = rng.random() < p.contrast_prob, rng.uniform(p.contrast_lower, p.contrast_upper)
    return saturated(image * np.float32(factor)) if happens and abs(factor - 1) > LEAST_CHANGE else image


def saturation(image: np.ndarray, p: Message, rng: Random) -> np.ndarray:
    happens, factor = rng.random() < p.saturation_prob, rng.uniform(p.saturation_lower, p.saturation_upper)
    if not happens or abs(factor - 1) <= LEAST_CHANGE:
        return image
    h, s, v = to_hsv(image)
    return from_hsv(h, saturated(s * np.float32(factor)), v)


def hue(image: np.ndarray, p: Message, rng: Random) -> np.ndarray:
    happens, delta = rng.random() < p.hue_prob, rng.uniform(-p.hue_delta, p.hue_delta)
    if not happens or abs(delta) == 0:
        return image
    h, s, v = to_hsv(image)
    return from_hsv(saturated(h + np.float32(delta)), s, v)


def channel_order(image: np.ndarray, p: Message, rng: Random) -> np.ndarray:
    happens, order = rng.random() < p.random_order_prob, rng.permutation(3)
    return image[order] if happens else image


def to_hsv(image: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hue in 0 .. 179, saturation and value in 0 .. 255, each [H,W]."""
    b, g, r = image.astype(np.int32)
    v = image.max(axis=0).astype(np.int32)
    difference = v - image.min(axis=0)
    half = 1 << (SHIFT - 1)
    s = (difference * _reciprocals(255)[v] + half) >> SHIFT
    h = np.where(v == r, g - b, np.where(v == g, b - r + 2 * difference, r - g + 4 * difference))
    h = (h * _reciprocals(HUES / 6)[difference] + half) >> SHIFT
    return np.where(h < 0, h + HUES, h), s, v


def _reciprocals(of: float) -> np.ndarray:
    numbers = np.arange(256)
    return np.where(numbers > 0, np.rint((of * (1 << SHIFT)) / np.maximum(numbers, 1)), 0).astype(np.int32)


def from_hsv(h: np.ndarray, s: np.ndarray, v: np.ndarray) -> np.ndarray:
    part_of_circle = h.astype(np.float32) * np.float32(6 / HUES)
    sector = np.floor(part_of_circle).astype(int)
    share = part_of_circle - sector
    value, grey = v.astype(np.float32) / 255, s.astype(np.float32) / 255
    table = np.stack([value, value * (1 - grey), value * (1 - grey * share), value * (1 - grey * (1 - share))])
    of_sector = np.array([[1, 3, 0], [1, 0, 2], [3, 0, 1], [0, 2, 1], [0, 1, 3], [2, 1, 0]])[sector % 6]
    channels = [np.take_along_axis(table, of_sector[None, ..., c], axis=0)[0] for c in range(3)]
    return saturated(np.stack(channels) * 255)


# -- canvas and window -------------------------------------------------------------------------------------------------


def expand(
    image: np.ndarray, boxes: Boxes, p: Message, emit: Message | None, mean: np.ndarray, rng: Random
) -> tuple[np.ndarray, Boxes]:
    """Put the image at a random place of a canvas, up to max_expand_ratio as wide and high, filled with `mean` [C]."""
    happens, ratio = rng.random() <= p.prob, rng.uniform(1, max(1.0, p.max_expand_ratio))
    down, right = rng.random(2)
    if not happens or abs(p.max_expand_ratio - 1) < LEAST_EXPANSION:
        return image, boxes
    channels, h, w = image.shape
    height, width = int(h * ratio), int(w * ratio)
    top, left = int(down * (height - h)), int(right * (width - w))
    canvas = np.empty((channels, height, width), np.uint8)
    canvas[...] = saturated(mean)[:, None, None]
    canvas[:, top : top + h, left : left + w] = image
    window = np.array([-left / w, -top / h, (width - left) / w, (height - top) / h], np.float32)
    return canvas, seen_through(boxes, window, emit)


def sample(
    image: np.ndarray, boxes: Boxes, samplers: list[Message], emit: Message | None, rng: Random
) -> tuple[np.ndarray, Boxes]:
    """Cut out one of the windows that the samplers find; without any, keep the whole image."""
    found = [window for sampler in samplers if sampler.use_original_image for window in windows(sampler, boxes, rng)]
    if not found:
        return image, boxes
    window = np.clip(found[rng.integers(len(found))], 0, 1)
    _, h, w = image.shape
    left, top = int(window[0] * w), int(window[1] * h)
    width, height = int(window[2] * w - window[0] * w), int(window[3] * h - window[1] * h)
    if width < 1 or height < 1:
        return image, boxes
    return image[:, top : top + height, left : left + width], seen_through(boxes, window, emit)


def windows(sampler: Message, boxes: Boxes, rng: Random) -> list[Window]:
    """Return up to max_sample windows that meet the constraint, out of max_trials."""
    found: list[Window] = []
    for _ in range(sampler.max_trials):
        if sampler.HasField("max_sample") and len(found) >= sampler.max_sample:
            break
        window = draw_window(sampler.sampler, rng)
        if meets(window, boxes[:, CORNERS], sampler.sample_constraint):
            found.append(window)
    return found


def draw_window(p: Message, rng: Random) -> Window:
    scale, aspect = rng.uniform(p.min_scale, p.max_scale), rng.uniform(p.min_aspect_ratio, p.max_aspect_ratio)
    aspect = min(max(aspect, scale**2), 1 / scale**2)
    width, height = scale * np.sqrt(aspect), scale / np.sqrt(aspect)
    left, top = rng.random(2) * (max(0.0, 1 - width), max(0.0, 1 - height))
    return np.array([left, top, left + width, top + height], np.float32)


def meets(window: Window, corners: np.ndarray, p: Message) -> bool:
    """Whether one of the boxes lies in each stated range of overlap, coverage of the window and coverage of the box."""
    names = ("jaccard_overlap", "sample_coverage", "object_coverage")
    stated = [name for name in names if p.HasField(f"min_{name}") or p.HasField(f"max_{name}")]
    if not stated:
        return True
    inside = common(window, corners)
    shares = {
        "jaccard_overlap": overlap(window, corners),
        "sample_coverage": part(inside, area(window)),
        "object_coverage": part(inside, area(corners)),
    }
    return any(all(_in_range(shares[name][i], name, p) for name in stated) for i in range(len(corners)))


def _in_range(share: float, name: str, p: Message) -> bool:
    low, high = f"min_{name}", f"max_{name}"
    return not (p.HasField(low) and share < getattr(p, low)) and not (p.HasField(high) and share > getattr(p, high))
