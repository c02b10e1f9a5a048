"""Nets that are written by rule: the prototxt of residual networks of any depth."""
