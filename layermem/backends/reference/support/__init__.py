"""What kernels of several families have in common: matrix products on one thread, epilogues, and random numbers."""
