"""The nets that a solver trains and tests.

net or net_param              the train net, and every test net without a field of its own
train_net, train_net_param    the train net only
test_net_param, test_net      the first test nets, in this order
test_iter                     one value for each test net, so it determines their number; 0 tests none

source  Caffe solver.cpp, InitTrainNet and InitTestNets
"""

from __future__ import annotations

from dataclasses import dataclass

from layermem.errors import InputError
from layermem.proto.read import NetFile, SolverFile, read_net, resolve_path
from layermem.proto.schema import TEST, TRAIN, Message, NetState


@dataclass(frozen=True, eq=False)
class NetOfSolver:
    """A net before its layers are filtered, and the arguments of filter_net for it."""

    net: NetFile
    phase: int
    level: int
    stages: tuple[str, ...]  # in addition to stages in the net itself
    iterations: int = 0  # batches of one test; 0 for the train net


def train_net(solver: SolverFile) -> NetOfSolver:
    """The net that the solver trains; InputError unless there is exactly one."""
    sources = [
        field for field in ("net", "net_param", "train_net", "train_net_param") if solver.message.HasField(field)
    ]
    if len(sources) != 1:
        count = f"has {len(sources)} train nets ({', '.join(sources)})" if sources else "has no train net"
        field = sources[-1] if sources else ""
        raise solver.error(field, f"the solver {count}; give exactly one of net, net_param, train_net, train_net_param")
    state = solver.message.train_state if solver.message.HasField("train_state") else None
    return _in_state(_net_of(solver, sources[0]), TRAIN, state)


def test_nets(solver: SolverFile) -> list[NetOfSolver]:
    """The nets that the solver tests, one for each test_iter above 0."""
    message = solver.message
    sources = [("test_net_param", i) for i in range(len(message.test_net_param))]
    sources += [("test_net", i) for i in range(len(message.test_net))]
    generic = next((field for field in ("net_param", "net") if message.HasField(field)), None)
    count = len(message.test_iter)
    if count < len(sources) or (count > len(sources) and generic is None):
        what = f"the solver has {len(sources)} test nets and {count} test_iter; give one test_iter for each net"
        raise solver.error("test_iter" if count else sources[0][0], what)
    sources += [(str(generic), 0)] * (count - len(sources))
    if message.test_state and len(message.test_state) != count:
        what = f"the solver has {count} test nets and {len(message.test_state)} test_state; give one for each, or none"
        raise solver.error("test_state", what)
    if any(message.test_iter) and message.test_interval < 1:
        what = "the solver has test nets but no test_interval; set it to the number of iterations between tests"
        raise solver.error("test_interval", what)
    nets = []
    for i, (field, index) in enumerate(sources):
        if message.test_iter[i] < 0:
            what = f"test_iter {message.test_iter[i]} is too few; give 1 or more, or 0 for no test"
            raise solver.error("test_iter", what, i)
        if not message.test_iter[i]:
            continue
        state = message.test_state[i] if message.test_state else None
        nets.append(_in_state(_net_of(solver, field, index), TEST, state, message.test_iter[i]))
    return nets


def _net_of(solver: SolverFile, field: str, index: int = 0) -> NetFile:
    """Return the net in one field of the solver, or in the file that it names."""
    if field in solver.nets:
        return solver.nets[field][index]
    value = getattr(solver.message, field)
    try:
        path = resolve_path(value if isinstance(value, str) else value[index], solver.path)
    except InputError as error:
        raise solver.error(field, error.what, index) from None
    return read_net(path, solver.files)


def _in_state(net: NetFile, phase: int, given: Message | None, iterations: int = 0) -> NetOfSolver:
    """Return the net with its NetState: `phase`, overridden by the net's own state, then by the solver's."""
    state = NetState(phase=phase)
    state.MergeFrom(net.message.state)
    if given is not None:
        state.MergeFrom(given)
    stages = tuple(given.stage) if given is not None else ()
    return NetOfSolver(net, state.phase, state.level, stages, iterations)
