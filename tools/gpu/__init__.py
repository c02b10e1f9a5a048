"""The steps of tools/gpu_check.py: each is a module with run(results, options), run in its own process."""
