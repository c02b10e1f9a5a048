"""FEED: data sources, transforms, and the stream of batches that an input layer shows the net."""

from layermem.data.feed import ArrayFeed, Feed
from layermem.data.opening import declared_shapes, open_feed, probe, synthetic_feed

__all__ = ["ArrayFeed", "Feed", "declared_shapes", "open_feed", "probe", "synthetic_feed"]
