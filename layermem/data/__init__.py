"""Input data: sources, transforms, and the streams of batches of a net's input layers."""

from layermem.data.feed import ArrayFeed, Feed, NoiseFeed
from layermem.data.opening import declared_shapes, open_feed, probe, probe_files

__all__ = ["ArrayFeed", "Feed", "NoiseFeed", "declared_shapes", "open_feed", "probe", "probe_files"]
