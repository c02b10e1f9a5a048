"""Input data: sources, transforms, and the streams of batches of a net's input layers.

Names are imported on first use, because a plan needs only the shapes in a prototxt, without libraries for images or
databases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layermem.data.feed import ArrayFeed as ArrayFeed
    from layermem.data.feed import Feed as Feed
    from layermem.data.opening import open_feed as open_feed
    from layermem.data.probing import probe as probe
    from layermem.data.probing import probe_files as probe_files

__all__ = ["ArrayFeed", "Feed", "open_feed", "probe", "probe_files"]
FROM_PROBING, FROM_FEED = ("probe", "probe_files"), ("ArrayFeed", "Feed")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'layermem.data' has no attribute '{name}'")
    if name in FROM_PROBING:
        from layermem.data import probing

        return getattr(probing, name)
    from layermem.data import feed, opening

    return getattr(feed if name in FROM_FEED else opening, name)
