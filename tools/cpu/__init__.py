"""What tools/bench_cpu.py runs: its contestants, their turns, and the tables."""
