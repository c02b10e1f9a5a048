"""The cpu device against the reference: every op of every layer, written and added, on buffers side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from layermem._native import cpu
from layermem.backends.arena import Arena
from layermem.backends.cpu import CpuDevice
from layermem.backends.cpu.base import MAX_ARRAYS, cpu_kernels
from layermem.backends.reference import ReferenceDevice
from layermem.backends.reference.base import REGISTRY
from layermem.errors import InputError
from layermem.graph.ops import Op
from layermem.layers.base import Layer, Overlay, Step
from layermem.ops import CopyOut, GradientNorm
from tests.cases import CASES, select
from tests.cases.records import RECORDS
from tests.layers.harness import Run, batch_norm_scale, layer_of, logical, wants_of, with_epilogue

IMAGE = (2, 6, 7, 5)
RUNNABLE = [case for case in CASES.values() if {"small", "medium"} & set(case.sizes) and not case.residual]


@pytest.fixture(params=cpu.available_isas(), autouse=True)
def unit(request):
    cpu.set_isa(request.param)
    yield request.param
    cpu.set_isa("auto")


@pytest.fixture(autouse=True)
def native_only(monkeypatch):
    """No op of the cpu device may run on the reference's kernel here."""
    bind = ReferenceDevice.bind

    def refuse(self, op, arrays, context):
        assert type(self) is ReferenceDevice, f"{op.name} of layer '{op.layer_name}' has no native kernel"
        return bind(self, op, arrays, context)

    monkeypatch.setattr(ReferenceDevice, "bind", refuse)


def arguments(layer: Layer, xs: Sequence[np.ndarray] = (), ws: Sequence[np.ndarray] = ()) -> Run:
    """Random gradients of the tops with these bottoms and parameters, which are random by default."""
    rng = np.random.default_rng(5)
    xs = xs or [rng.standard_normal(x.shape) for x in layer.bottoms]
    ws = ws or [np.abs(rng.standard_normal(p.tensor.shape)) + 1 for p in layer.params]
    run = Run(layer, dtype="float32")
    for stem, values in (("x", xs), ("w", ws), ("dy", [rng.standard_normal(y.shape) for y in layer.tops])):
        for i, value in enumerate(values):
            run.put(f"{stem}{i}", value)
    return run


def stored(array: np.ndarray) -> np.ndarray:
    return array.transpose(0, 2, 3, 1) if array.ndim == 4 else array


def execute(
    device, run: Run, step: Step, adds: tuple[str, ...], overlays: tuple[Overlay, ...] = ()
) -> dict[str, np.ndarray]:
    """Run one op on copies of the arrays, each on its own 256 bytes of an arena, or an output over an input; return the
    results."""
    rng = np.random.default_rng(9)
    layer, changed = run.layer, (*step.writes, *step.updates)
    roles = dict.fromkeys((*step.reads, *changed))
    record = step.record or layer.record
    workspace = device.workspace_bytes(record, step.step, roles)
    arrays: dict[str, np.ndarray] = {}
    arena = Arena(sum(256 + 256 * (run.tensor(role).nbytes // 256 + 1) for role in roles) + workspace, poison=True)
    offset = 0
    for role in roles:
        source = rng.standard_normal(run.tensor(role).shape).astype("float32") if role in adds else run.arrays.get(role)
        array = arena.view(offset, run.tensor(role))
        if source is not None and (role not in step.writes or role in adds):
            array[...] = stored(source)
        arrays[role] = array
        offset += 256 * (run.tensor(role).nbytes // 256 + 1) + 256
    for overlay in overlays:
        arrays[overlay.out] = arrays[overlay.over].reshape(arrays[overlay.out].shape)
    arrays["workspace"] = arena.span(offset, workspace)
    op = Op(layer.name, "forward", record, step.step, {}, (), (), accumulates=adds, layer_name=layer.name)
    device.bind(op, arrays, {"seed": 7, "step": 3})()
    results = {}
    for role in changed:
        results[role] = logical(run.tensor(role), "float32")
        stored(results[role])[...] = arrays[role]
    return results


@pytest.mark.exhaustive(2)
@pytest.mark.parametrize(
    "size, case",
    [*(("medium", case) for case in RUNNABLE), *(("edges", case) for case in select("edges"))],
    ids=lambda value: getattr(value, "name", value),
)
def test_an_op_gives_what_the_reference_gives(size, case):
    layer = case.layer(size)
    compare(layer, *case.inputs(layer, np.random.default_rng(6)))


def compare(layer: Layer, xs: Sequence[np.ndarray], ws: Sequence[np.ndarray]) -> None:
    run = arguments(layer, xs, ws)
    for step in filter(None, [layer.forward(), layer.recompute(), *layer.backward(wants_of(layer))]):
        backward = step.step not in ("forward", "recompute", "load", "store")
        for adds in ((), tuple(step.writes)) if backward else ((),):
            expected = execute(ReferenceDevice(), run, step, adds)
            found = execute(CpuDevice(), run, step, adds)
            for role, value in expected.items():
                near = 2e-6 * max(10.0, abs(value).max())  # long sums of large terms may have small results
                np.testing.assert_allclose(
                    found[role], value, rtol=2e-5, atol=near, err_msg=f"{step.step} {role} {adds}"
                )
            if adds:
                continue
            for overlays in overlaid(step):
                on_top = execute(CpuDevice(), run, step, (), overlays)
                for role, value in found.items():
                    np.testing.assert_array_equal(on_top[role], value, err_msg=f"{step.step} {role} with {overlays}")
            run.arrays.update(expected)


def overlaid(step: Step) -> list[tuple[Overlay, ...]]:
    """Every overlay that a step permits, alone, and as many of them as may be taken together."""
    together: list[Overlay] = []
    for overlay in step.overlays:
        if all({overlay.out, overlay.over}.isdisjoint({other.out, other.over}) for other in together):
            together.append(overlay)
    several = [tuple(together)] if len(together) > 1 else []
    return [] if step.updates else [*((overlay,) for overlay in step.overlays), *several]


def test_the_cpu_backend_has_every_kernel_of_the_reference():
    """The reference kernel runs only an Eltwise or a Split of more arrays than one native op combines; and only it
    gathers bands of rows, whose sums continue from band to band on the cpu device (ops.BandRules)."""
    assert {*cpu_kernels.names()} == {*REGISTRY.names()} - {"InnerProduct.gathered_dgrad"}
    assert MAX_ARRAYS == 256


@pytest.mark.parametrize("count", [MAX_ARRAYS, MAX_ARRAYS + 1])
def test_the_reference_kernel_combines_more_arrays_than_a_native_one(count, monkeypatch):
    left = set()
    monkeypatch.setattr(ReferenceDevice, "bind", lambda self, op, arrays, context: left.add(op.kernel) or (lambda: 0))
    shapes = [(3,)] * count
    layers = [layer_of(f'type: "Eltwise" eltwise_param {{ operation: {o} }}', *shapes) for o in ("SUM", "PROD", "MAX")]
    layers += [
        with_epilogue(layers[0], residual=False, relu=True),
        layer_of('type: "Split"' + ' top: "t"' * count, (3,)),
    ]
    for layer in layers:
        run = arguments(layer)
        for step in [layer.forward(), *layer.backward([f"dx{i}" for i in range(len(layer.bottoms))])]:
            execute(CpuDevice(), run, step, ())
            run.arrays |= {role: logical(run.tensor(role), "float32") for role in step.writes if role[0] != "d"}
    kinds = ["Eltwise.forward", "Eltwise.backward", "Split.backward"]
    assert left == (set(kinds) if count > MAX_ARRAYS else set())


@pytest.mark.parametrize("fused", [False, True])
def test_statistics_that_no_backward_reads_are_in_the_workspace(fused):
    layer = batch_norm_scale(IMAGE, relu=True) if fused else layer_of('type: "BatchNorm"', IMAGE)
    step = layer.forward()
    bare = replace(step, writes=("y0",))
    run = arguments(layer)
    expected, found = execute(CpuDevice(), run, step, ()), execute(CpuDevice(), run, bare, ())
    for role in ("y0", "w0", "w1", "w2"):
        np.testing.assert_array_equal(found[role], expected[role])


def test_an_output_goes_to_the_host_with_caffes_axes():
    layer = layer_of('type: "ReLU"', IMAGE)
    run, results = arguments(layer), {}
    for _ in range(2):  # into a new array each time
        blob = np.ascontiguousarray(stored(run.arrays["x0"]))
        op = Op("out", "forward", CopyOut("blob"), "forward", {}, (), ())
        CpuDevice().bind(op, {"x0": blob}, {"results": results})()
        np.testing.assert_array_equal(results["blob"], run.arrays["x0"])
        assert results["blob"].flags.c_contiguous and not np.shares_memory(results["blob"], blob)


@pytest.mark.parametrize("name", [name for name in RECORDS if name not in ("Feed", "CopyOut")])
def test_an_op_without_a_layer_gives_what_the_reference_gives(name):
    case = RECORDS[name]
    values, results = case.inputs(np.random.default_rng(8)), []
    for device in (ReferenceDevice(), CpuDevice()):
        arrays = {
            role: np.zeros(t.stored, "float32") for role, t in {**case.reads, **case.updates, **case.writes}.items()
        }
        for role, value in values.items():
            arrays[role][...] = stored(value)
        workspace = cpu_kernels.workspace_bytes(case.record, case.step, tuple(arrays))
        op = Op(name, "forward", case.record, case.step, {}, (), ())
        device.bind(op, {**arrays, "workspace": np.zeros(workspace, "uint8")}, case.context)()
        results.append(arrays)
    for role, value in results[0].items():
        np.testing.assert_allclose(results[1][role], value, rtol=2e-5, atol=2e-6, err_msg=role)


def test_the_norm_of_gradients_runs_over_all_of_them():
    rng = np.random.default_rng(3)
    arrays = {
        f"x{i}": rng.standard_normal(n).astype("float32") for i, n in enumerate((3, 40000, 1, 7, 70000, *[2] * 8))
    }
    norms = []
    for device in (ReferenceDevice(), CpuDevice()):
        norm = np.zeros((), "float32")
        device.bind(Op("clip", "update", GradientNorm(), "forward", {}, (), ()), {**arrays, "y0": norm}, {})()
        norms.append(float(norm))
    assert abs(norms[1] / norms[0] - 1) < 1e-6


@pytest.mark.parametrize("kind", ["Accuracy", "HingeLoss", "MultinomialLogisticLoss", "SoftmaxWithLoss"])
def test_a_label_that_is_no_class_names_the_layer(kind):
    layer = layer_of(f'type: "{kind}" name: "judge"', (2, 3), (2,))
    run = arguments(layer)
    run.put("x1", np.array([0, 3]))
    with pytest.raises(InputError, match=r"judge.*label 3.*0 to 2"):
        execute(CpuDevice(), run, layer.forward(), ())


def test_an_environment_variable_selects_the_isa_and_devices_say_which(monkeypatch):
    for isa in cpu.available_isas():
        monkeypatch.setenv("LAYERMEM_ISA", isa)
        assert CpuDevice().arithmetic == f"cpu {isa}" and cpu.active_isa() == isa
    assert ReferenceDevice().arithmetic == "reference"
    monkeypatch.setenv("LAYERMEM_ISA", "mmx")
    with pytest.raises(InputError, match="LAYERMEM_ISA is 'mmx', which this build does not run; set it to one of base"):
        CpuDevice()
