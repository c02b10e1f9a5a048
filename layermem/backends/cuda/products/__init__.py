"""Products of matrices, and convolutions as such: the choices that inner_product.py and convolution.py leave.

gemm_tiles.py      tiles of conv_fprop, conv_dgrad and conv_wgrad, and the choice of one
nominal_gpus.py    a GPU of each architecture, by which tiles are chosen
implicit_gemm.py   conv_fprop and conv_dgrad, with what follows in them
conv_patch.py      images of few channels: bytes of a tile's part of the image
wgrad.py           conv_wgrad, and the split of a weight gradient
wgrad_slices.py    weight gradients slice by slice of the batch, with the bits of the whole
inner_parts.py     inner products of few rows, whose sums are in parts
warpgroup.py       which products run by warpgroups on compute capability 9.0, and their launches
weight_tiles.py    weights of products of blobs in 16 bits: rounded before, or as tiles for warpgroups
narrow_products.py which products take blobs in 16 bits, by precision
direct.py          convolutions that are no products of matrices: launches, and the parts of weight gradients
direct_problems.py depthwise.py grouped.py   which they are; a group a channel; 4, 8 and 16 channels a group
"""
