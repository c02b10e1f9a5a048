"""Caffe's programs, with their flags, logs and exit codes; what they do is done by the verbs of `layermem`."""
