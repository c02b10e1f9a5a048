"""Modules that the campaigns share: random_nets.py, fuzz.py and crash.py."""
