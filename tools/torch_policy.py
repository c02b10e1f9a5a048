"""Runs recomputation in PyTorch that layermem plans: a training graph, its plan, and a selective-checkpoint policy.

    python tools/torch_policy.py [--model FILE.py:NAME] [--budget 50%] [--export graph.txt]

NAME is a function without arguments that returns the stages of a net (a list of modules, run one after the other) and
an input tensor; the default is a small convolutional net.  Needs PyTorch for all but --help.

1  AOTAutograd traces forward and backward of the mean square of the output: the training graph (torch.fx)
2  it becomes a graph file of Kusumoto et al., which `layermem plan-graph` reads too (--export)
3  layermem plans which values to keep within the budget
4  each stage runs under torch.utils.checkpoint with a policy that saves those values and recomputes the others
5  one step of both runs, to compare peaks of memory, by PyTorch's record of its allocations, and gradients

A value of the graph is identified at run time as the n-th result of its operator.  Views share the bytes of their base.
A product of matrices costs as much as a convolution: 10; everything else costs 1.

source  Kusumoto et al., NeurIPS 2019; torch.utils.checkpoint, create_selective_checkpoint_contexts
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from layermem.errors import InputError, LayermemError
from layermem.integrations.graph_files.planner import GraphPlan, GraphPlanner
from layermem.integrations.graph_files.text_format import FileFunction, GraphFile, Variable, write_graph
from layermem.utils.units import format_bytes, parse_bytes

PRODUCTS = ("convolution", "mm", "addmm", "bmm", "baddbmm")
NOT_EXPRESSED = (
    "a policy does not offload: values are saved in the memory of the device or recomputed",
    "it does not place: PyTorch's allocator decides addresses, so the peak is no promise",
    "it does not order: a stage recomputes all that it has not saved at once, before its first backward",
    "the inputs of each stage are saved, whatever the plan says",
)


@dataclass(frozen=True)
class Op:
    """A node of a training graph, with views already resolved.

    target    its operator, such as aten.relu.default
    reads     names of values, parameters and inputs
    writes    (name, bytes) of its results
    backward  whether it belongs to the backward pass
    sequence  the number that an op and its backward share
    """

    target: str
    reads: tuple[str, ...]
    writes: tuple[tuple[str, int], ...]
    backward: bool = False
    sequence: int = -1


@dataclass
class Traced:
    """sources  (name, bytes, whether it is a parameter) of the inputs of the graph"""

    sources: list[tuple[str, int, bool]]
    ops: list[Op]

    @property
    def ids(self) -> dict[str, int]:
        """The variables of the graph file: inputs of the graph, then the results of forward ops."""
        names = [name for name, _, _ in self.sources] + [name for op in self.forward for name, _ in op.writes]
        return {name: i for i, name in enumerate(names)}

    @property
    def forward(self) -> list[Op]:
        return [op for op in self.ops if not op.backward]

    def graph_file(self) -> GraphFile:
        """The graph in the form of Kusumoto et al.: a variable per value, and a backward for each forward op."""
        variables = [
            Variable(nbytes, f"/{name}" if parameter else str(i))
            for i, (name, nbytes, parameter) in enumerate(self.sources)
        ]
        variables += [Variable(nbytes, "_") for op in self.forward for _, nbytes in op.writes]
        ids, saved = self.ids, self.saved_by_op()
        forwards, backwards = [], []
        for index, op in enumerate(self.forward):
            reads = [ids[name] for name in dict.fromkeys(op.reads)]
            writes = [ids[name] for name, _ in op.writes]
            kind = ("Conv_" if op.target.split(".")[1] in PRODUCTS else "") + op.target
            forwards.append(FileFunction("forward", kind, tuple((v, "_") for v in reads), tuple(writes)))
            data = [(v, "output" if v in writes else "input") for v in sorted({ids[name] for name in saved[index]})]
            gradients = [(v, "gradient") for v in writes]
            backwards.append(FileFunction("backward", kind, (*gradients, *data), tuple(reads)))
        return GraphFile(tuple(variables), tuple(forwards), tuple(backwards))

    def saved_by_op(self) -> list[set[str]]:
        """The values of the forward pass that the backward of each forward op reads.

        A node of the backward pass belongs to the op with its sequence number or, without one, to the last op whose
        inputs and results include everything that it reads."""
        forward = self.forward
        around = [{*op.reads, *(name for name, _ in op.writes)} for op in forward]
        known = {name for names in around for name in names}
        saved: list[set[str]] = [set() for _ in forward]
        for op in self.ops:
            reads = {name for name in op.reads if name in known} if op.backward else set()
            if reads:
                owner = [
                    i for i, each in enumerate(forward) if each.sequence == op.sequence >= 0 and reads <= around[i]
                ]
                owner = owner or [i for i, names in enumerate(around) if reads <= names]
                if owner:
                    saved[owner[-1]] |= reads
                else:  # values of several ops: each belongs to the op that makes it
                    for i, each in enumerate(forward):
                        saved[i] |= reads & {name for name, _ in each.writes}
        return saved


@dataclass(frozen=True)
class Saved:
    """Results of operators that are saved: the numbers of the operators' calls in the forward pass."""

    calls: dict[str, frozenset[int]]

    @classmethod
    def of(cls, traced: Traced, kept: set[int]) -> Saved:
        """The calls that make a variable in `kept`."""
        ids, counts = traced.ids, Counter[str]()
        calls: dict[str, set[int]] = defaultdict(set)
        for op in traced.forward:
            if any(ids[name] in kept for name, _ in op.writes):
                calls[op.target].add(counts[op.target])
            counts[op.target] += 1
        return cls({target: frozenset(numbers) for target, numbers in calls.items()})

    def has(self, target: str, number: int) -> bool:
        return number in self.calls.get(target, ())


def kept_values(graph: GraphFile, plan: GraphPlan) -> set[int]:
    """The variables that a plan keeps from the forward pass: the boundary of each lower set, and the last segment."""
    readers: dict[int, set[int]] = defaultdict(set)
    for function in graph.forward:
        for variable, _ in function.reads:
            readers[variable] |= set(function.writes)
    kept: set[int] = set()
    before: set[int] = set()
    for lower in plan.chain:
        kept |= {v for v in lower if readers[v] - set(lower)}
        last, before = set(lower) - before, set(lower)
    return kept | last if plan.chain else kept


# -- with PyTorch ------------------------------------------------------------------------------------------------------


def trace(stages: Sequence[Any], x: Any) -> Traced:
    """Trace the training graph of the mean square of the stages' output for x."""
    import torch
    from torch._functorch.aot_autograd import aot_function, make_boxed_func
    from torch._functorch.partitioners import default_partition
    from torch.func import functional_call

    net = torch.nn.Sequential(*stages)
    names = [name for name, _ in net.named_parameters()]
    found: list[Traced] = []

    def run(*tensors: Any) -> Any:
        return functional_call(net, dict(zip(names, tensors)), (tensors[-1],)).square().mean()

    def partition(module: Any, inputs: Any, **options: Any) -> Any:
        found.append(traced_of(module.graph, names, options["num_fwd_outputs"]))
        return default_partition(module, inputs, **options)

    compiled = aot_function(run, fw_compiler=lambda module, _: make_boxed_func(module), partition_fn=partition)
    compiled(*(p.detach().clone().requires_grad_() for p in net.parameters()), x.detach().clone()).backward()
    return found[0]


def traced_of(graph: Any, parameters: Sequence[str], outputs: int) -> Traced:
    """The Traced of a torch.fx graph of AOTAutograd, whose first outputs belong to the forward pass."""
    forward: set[Any] = set()
    stack = [each for each in next(iter(reversed(graph.nodes))).args[0][:outputs] if each is not None]
    while stack:
        node = stack.pop()
        if node not in forward:
            forward.add(node)
            stack += node.all_input_nodes
    base: dict[Any, str] = {}  # node -> its value, or the value of which it is a view
    sources: list[tuple[str, int, bool]] = []
    ops: list[Op] = []
    for node in graph.nodes:
        if node.op == "placeholder":
            base[node] = node.name
            if "tangents" not in node.name:
                sources.append((node.name, _bytes(node.meta.get("val")), len(sources) < len(parameters)))
        elif node.op == "call_function":
            inputs = node.all_input_nodes
            if str(node.target) == "<built-in function getitem>":
                base[node] = f"{base[inputs[0]]}[{node.args[1]}]"
            elif getattr(node.target, "is_view", False) or node.target.__name__.startswith("detach"):
                base[node] = base[inputs[0]]
            else:
                base[node] = node.name
                reads = tuple(base[each] for each in inputs)
                sequence = node.meta.get("seq_nr", -1)
                ops.append(Op(str(node.target), reads, _writes(node), node not in forward, sequence))
    return Traced(sources, ops)


def _writes(node: Any) -> tuple[tuple[str, int], ...]:
    value = node.meta.get("val")
    if isinstance(value, (tuple, list)):
        return tuple((f"{node.name}[{i}]", _bytes(each)) for i, each in enumerate(value) if _bytes(each))
    return ((node.name, _bytes(value)),)


def _bytes(value: Any) -> int:
    return value.numel() * value.element_size() if hasattr(value, "numel") else 0


class Policy:
    """The contexts of torch.utils.checkpoint for each stage.

    Calls are counted, from the same start again when a stage is recomputed.
    """

    def __init__(self, saved: Saved):
        self.saved = saved
        self.forward: Counter[str] = Counter()

    def contexts(self) -> Any:
        """Return the context_fn of one run of one stage."""
        from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

        again = Counter(self.forward)

        def policy(context: Any, op: Any, *arguments: Any, **options: Any) -> Any:
            counts, target = again if context.is_recompute else self.forward, str(op)
            number = counts[target]
            counts[target] += 1
            saved = self.saved.has(target, number)
            return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

        return create_selective_checkpoint_contexts(policy)


def step(stages: Sequence[Any], x: Any, saved: Saved | None) -> tuple[int, list[Any]]:
    """Run one step; return the peak bytes that it allocates in addition to existing ones, and its gradients."""
    import torch
    from torch.utils.checkpoint import checkpoint

    parameters = [p for stage in stages for p in stage.parameters()]
    for parameter in parameters:
        parameter.grad = None
    torch.manual_seed(0)
    policy = None if saved is None else Policy(saved)
    with torch.autograd.profiler.profile(profile_memory=True, use_kineto=True) as profiler:
        y = x
        for stage in stages:
            y = stage(y) if policy is None else checkpoint(stage, y, use_reentrant=False, context_fn=policy.contexts)
        y.square().mean().backward()
        del y
    events = [each for each in profiler.kineto_results.events() if each.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda each: each.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak, [p.grad.clone() for p in parameters]


def convolutions() -> tuple[list[Any], Any]:
    """Eight stages of two convolutions with their norms, and a batch of images."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    stages: list[Any] = []
    channels = 3
    for _ in range(8):
        layers: list[Any] = []
        for _ in range(2):
            layers += [nn.Conv2d(channels, 16, 3, padding=1, bias=False), nn.GroupNorm(4, 16), nn.SiLU()]
            channels = 16
        stages.append(nn.Sequential(*layers))
    return stages, torch.randn(8, 3, 32, 32)


def load_model(text: str | None) -> tuple[Sequence[Any], Any]:
    if text is None:
        return convolutions()
    file, _, name = text.rpartition(":")
    spec = importlib.util.spec_from_file_location("users_model", file)
    if not name or spec is None or spec.loader is None or not Path(file).exists():
        raise InputError(f"--model '{text}' is not FILE.py:NAME of a file that is there; give both")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    make: Callable[[], tuple[Sequence[Any], Any]] = getattr(module, name)
    return make()


def run(options: argparse.Namespace) -> None:
    try:
        import torch
    except ModuleNotFoundError:
        raise InputError("needs PyTorch; install it with pip install 'layermem[bench]'") from None
    torch.use_deterministic_algorithms(True)
    stages, x = load_model(options.model)
    traced = trace(stages, x)
    graph = traced.graph_file()
    if options.export:
        write_graph(graph, options.export)
    planner = GraphPlanner(graph)
    whole = planner.values.total_bytes
    plan = planner.plan(None if options.budget is None else parse_bytes(options.budget, whole=whole))
    if not plan.feasible:
        raise InputError(f"--budget is below the least, {format_bytes(plan.minimum_bytes)}; give that, or more")
    kept = kept_values(graph, plan)
    saved = Saved.of(traced, kept)
    values = [v for v, variable in enumerate(graph.variables) if variable.is_value]
    nbytes = sum(graph.variables[v].bytes for v in values)
    print(f"graph         {len(graph.forward)} ops, {len(values)} values of {format_bytes(nbytes)}")
    print(
        f"plan          peak {format_bytes(plan.peak_bytes or 0)} of values and gradients "
        f"(all at once {format_bytes(whole)}), {plan.cost_recomputed} of {plan.cost_forward} recomputed"
    )
    print(f"saved         {len(kept)} values of {format_bytes(sum(graph.variables[v].bytes for v in kept))}")
    peak, gradients = step(stages, x, None)
    less, again = step(stages, x, saved)
    print(f"peak without  {format_bytes(peak)}\npeak with     {format_bytes(less)}, {less / peak:.1%}")
    equal = all(torch.equal(a, b) for a, b in zip(gradients, again))
    print(f"gradients     {'bitwise equal' if equal else 'DIFFER'}")
    for sentence in NOT_EXPRESSED:
        print(f"note          {sentence}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", metavar="FILE.py:NAME", help="a function that returns stages and an input")
    parser.add_argument("--budget", metavar="B", help="of values and gradients: bytes, 2MiB, 50%% (default: the least)")
    parser.add_argument("--export", metavar="F", help="write the graph file too")
    try:
        run(parser.parse_args())
    except LayermemError as error:
        print(f"torch_policy: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
