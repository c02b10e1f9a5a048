"""Nets that run by hand: forward, backward, blobs and parameters, by pycaffe's names."""
