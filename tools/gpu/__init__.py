"""The steps of tools/gpu_check.py: each a module with run(results, options), in a process of its own."""
