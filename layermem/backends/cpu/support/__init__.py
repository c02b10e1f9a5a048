"""What kernels of several families have in common: calls of native kernels, broadcasts, and slices of a batch."""
