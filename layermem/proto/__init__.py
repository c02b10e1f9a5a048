"""Caffe's files: prototxt as messages with line numbers, weights as numpy arrays, and both written back."""

from layermem.proto.blobs import read_blob, reshaped
from layermem.proto.filter import filter_by_state, filter_net
from layermem.proto.read import (
    NetFile,
    SolverFile,
    read_net,
    read_net_text,
    read_solver,
    read_solver_text,
    resolve_path,
)
from layermem.proto.solver_nets import NetOfSolver, test_nets, train_net
from layermem.proto.weights import read_weights, write_weights

__all__ = [
    "NetFile",
    "NetOfSolver",
    "SolverFile",
    "filter_by_state",
    "filter_net",
    "read_blob",
    "read_net",
    "read_net_text",
    "read_solver",
    "read_solver_text",
    "read_weights",
    "reshaped",
    "resolve_path",
    "test_nets",
    "train_net",
    "write_weights",
]
