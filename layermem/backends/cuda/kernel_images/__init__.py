"""Kernel sources and the images that a GPU loads: prebuilt, cached, or compiled by NVRTC or nvcc."""
