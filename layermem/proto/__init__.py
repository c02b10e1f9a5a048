"""READ: Caffe's files.  Text becomes messages that know their lines; weights become numpy arrays, and back."""

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

__all__ = [
    "NetFile",
    "SolverFile",
    "filter_by_state",
    "filter_net",
    "read_net",
    "read_net_text",
    "read_solver",
    "read_solver_text",
    "resolve_path",
]
