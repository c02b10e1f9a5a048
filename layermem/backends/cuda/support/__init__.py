"""What the kernels of several families have in common: launches, packed structs, sums, and conversions."""
