"""Generated nets: prototxt builders, one module per family, and the list of them all (catalog.py)."""
