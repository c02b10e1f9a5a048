"""Input data: sources, transforms, and the streams of batches of a net's input layers."""

from layermem.data.feed import ArrayFeed, Feed
from layermem.data.opening import declared_shapes, open_feed, probe, probe_files, synthetic_feed

__all__ = ["ArrayFeed", "Feed", "declared_shapes", "open_feed", "probe", "probe_files", "synthetic_feed"]
