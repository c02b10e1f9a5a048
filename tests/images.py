"""Small images of shapes that a net can learn to tell apart, in one folder for each class."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

CLASSES = ("circle", "cross", "square", "triangle")


def write_shapes(folder: Path, each: int, *, height: int = 28, width: int = 28) -> Path:
    """`each` images of every class, as FOLDER/circle/00.png and so on."""
    random = np.random.default_rng(0)
    for kind in CLASSES:
        (folder / kind).mkdir(parents=True)
        for number in range(each):
            image = Image.fromarray(random.integers(0, 90, (height, width, 3), np.uint8))
            r = int(random.integers(height // 5, height // 3))
            x, y = (int(random.integers(r, side - r)) for side in (width, height))
            colour = tuple(int(value) for value in random.integers(140, 256, 3))
            _draw_shape(ImageDraw.Draw(image), kind, (x - r, y - r, x + r, y + r), colour)
            image.save(folder / kind / f"{number:02d}.png")
    return folder


def _draw_shape(draw: ImageDraw.ImageDraw, kind: str, box: tuple[int, ...], colour: tuple[int, ...]) -> None:
    left, top, right, bottom = box
    if kind == "circle":
        draw.ellipse(box, outline=colour, width=2)
    elif kind == "square":
        draw.rectangle(box, outline=colour, width=2)
    elif kind == "triangle":
        draw.polygon([((left + right) // 2, top), (right, bottom), (left, bottom)], outline=colour, width=2)
    else:
        draw.line(box, fill=colour, width=2)
        draw.line((left, bottom, right, top), fill=colour, width=2)
