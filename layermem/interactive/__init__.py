"""Nets for interactive use: forward, backward, blobs and parameters, with the API of pycaffe."""
