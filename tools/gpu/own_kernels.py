"""Kernels that only these tools use: ceilings.cu and ceilings_sm90a.cu in this folder."""

from __future__ import annotations

import re
from pathlib import Path

from layermem.backends.cuda.kernel_images import build
from layermem.backends.cuda.kernel_images.sources import SOURCES, architecture

SOURCE, OF_WARPGROUPS = OWN_SOURCES = tuple(
    Path(__file__).with_name(name) for name in ("ceilings.cu", "ceilings_sm90a.cu")
)
THREADS = 256  # threads of a block


def image(source: Path, capability: str, emulated: bool) -> bytes:
    """The machine code of a source: brought along (carry.py), or compiled here."""
    if emulated:
        from tests.emulator.build import build as for_the_host

        return for_the_host(source).read_bytes()
    return build.prebuilt(source.stem) or compiled(source, capability)


def compiled(source: Path, capability: str) -> bytes:
    target = architecture(source.stem, capability)
    return build.find_compiler().cubin(whole_text(source), f"{build.CODE}{target}", build.FLAGS)


def whole_text(source: Path) -> str:
    """The source after the headers that it includes."""
    headers = [SOURCES / "primitives.cuh", SOURCES / "warpgroup.cuh"][: 2 if source == OF_WARPGROUPS else 1]
    text = "\n".join(path.read_text(encoding="utf-8") for path in (*headers, source))
    return re.sub(r'^#pragma once$|^#include ".*"$', "", text, flags=re.MULTILINE)
