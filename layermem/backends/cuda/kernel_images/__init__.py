"""Kernel sources and the images that a card loads: prebuilt, cached, or compiled by NVRTC or nvcc."""
