"""The CUDA driver through PyCUDA: context and streams, memory, host I/O, error flags, captured steps."""
