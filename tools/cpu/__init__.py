"""Parts of tools/bench_cpu.py: its contestants, their turns, and the tables."""
