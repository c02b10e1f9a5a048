"""Draws residencies as rows of ticks, so that a test shows its lifetimes.

a  512 ##..      the name of the buffer, its bytes, # where it is resident
b  512 .##.
"""

from __future__ import annotations

from collections.abc import Iterable

from layermem.schedule.ir import Residency


def residencies(picture: str, *, host: Iterable[str] = (), over: dict[str, str] | None = None) -> list[Residency]:
    """Return the residencies in `picture`, without offsets; `host` and `over` name buffers."""
    found: list[Residency] = []
    ids: dict[str, int] = {}
    for rid, line in enumerate(picture.strip().splitlines()):
        name, nbytes, ticks = line.split()
        assert ticks.strip(".").strip("#") == "", f"'{ticks}' is not one stay"
        ids[name] = rid
        overlaid = ids[over[name]] if over and name in over else None
        found.append(
            Residency(rid, name, ticks.index("#"), ticks.rindex("#") + 1, int(nbytes), -1, name in host, overlaid)
        )
    return found


def drawn(stays: Iterable[Residency], ticks: int) -> str:
    """A row for each of `stays`; the host arena is marked with a star."""
    return "\n".join(
        f"{r.buffer}{'*' if r.host else ''} {'.' * r.begin}{'#' * (r.end - r.begin)}{'.' * (ticks - r.end)}"
        for r in stays
    )
