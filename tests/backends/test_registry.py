"""The kernel registry: one kernel per record type and step, with the workspace that it needs."""

import pytest

from layermem.backends.cpu.base import CpuCall, cpu_kernels
from layermem.backends.cuda import cuda_kernels
from layermem.backends.cuda.base import CudaCall
from layermem.backends.registry import KernelCall, KernelRegistry, UndeclaredRole
from layermem.ops import Fill, Kind, Pointwise, Pool, ReluMask, Silence, Tensor, Window

X = Tensor((2, 3))


def registry() -> KernelRegistry[KernelCall, str]:
    kernels: KernelRegistry[KernelCall, str] = KernelRegistry("test")

    @kernels.kernel(Pointwise, "forward", "backward", workspace=lambda op, roles: op.x.nbytes * ("mask" in roles))
    def pointwise(op: Pointwise, call: KernelCall) -> str:
        return f"{op.kind.value} at {call['x0']}"

    return kernels


def test_a_kernel_is_found_by_record_type_and_step():
    kernels, record = registry(), Pointwise(Kind.TANH, X)
    assert kernels.bind(record, "forward", KernelCall({"x0": 64})) == "tanh at 64"
    assert kernels.implements(record, "backward") and not kernels.implements(record, "recompute")
    assert not kernels.implements(Silence(), "forward")
    with pytest.raises(KeyError):
        kernels.bind(Fill(0.0), "fill", KernelCall({}))


def test_workspace_depends_on_record_and_roles():
    kernels, record = registry(), Pointwise(Kind.RELU, X)
    assert kernels.workspace_bytes(record, "forward", ("x0", "y0", "mask")) == 24
    assert kernels.workspace_bytes(record, "forward", ("x0", "y0")) == 0
    assert kernels.workspace_bytes(Fill(0.0), "fill", ("y0",)) == 0


def test_names_list_every_kernel():
    assert registry().names() == ["Pointwise.backward", "Pointwise.forward"]


def test_a_call_has_addresses_by_role_and_0_for_absent_ones():
    call = KernelCall({"x0": 64, "x1": 128, "x3": 256, "workspace": 512}, {"x0": 6}, accumulated=("x1",))
    assert (call["x0"], call["mask"], call.workspace, call.count("x0")) == (64, 0, 512, 6)
    assert "x1" in call and "mask" not in call
    assert call.accumulates("x1") and not call.accumulates("x0")
    assert call.numbered("x") == [64, 128]  # up to the first gap


def test_a_pool_is_not_served_by_the_kernel_of_another_record():
    pool = Pool("MAX", Tensor((1, 1, 4, 4)), Tensor((1, 1, 2, 2)), Window(4, 2, 2), Window(4, 2, 2))
    assert not registry().implements(pool, "forward")


def test_a_call_requires_one_of_several_roles():
    call = KernelCall({"x0": 64, "dy0": 128}, layer="relu1")
    assert call.require("y0", "x0") == 64
    with pytest.raises(UndeclaredRole, match=r"layer 'relu1' did not declare 'y0' or 'y1'.*\(declared: x0 dy0\)"):
        call.require("y0", "y1")


@pytest.mark.parametrize(("kernels", "call"), [(cpu_kernels, CpuCall), (cuda_kernels, CudaCall)], ids=["cpu", "cuda"])
@pytest.mark.parametrize(
    ("record", "step"),
    [
        *((Pointwise(kind, X, 2.0, 1.0), "backward") for kind in (Kind.SIGMOID, Kind.ELU, Kind.RELU, Kind.POWER)),
        (ReluMask(X), "relu_backward"),
    ],
    ids=["sigmoid", "elu", "relu", "power", "relu-mask"],
)
def test_no_backend_computes_a_slope_from_roles_that_the_op_does_not_declare(kernels, call, record, step):
    bound = call({"dy0": 64, "dx0": 128}, {"dy0": 6, "dx0": 6}, layer="a")
    with pytest.raises(UndeclaredRole, match="layer 'a' did not declare 'y0'"):
        list(kernels.bind(record, step, bound))


def test_a_kernel_takes_in_16_bits_what_it_declares_where_all_of_that_is_so():
    for adds in (False, True):
        kernels: KernelRegistry[KernelCall, str] = KernelRegistry("test", adds_narrow=adds)
        kernels.kernel(Pointwise, "forward", narrow="x0|y0")(lambda op, call: "")
        record, all_narrow = Pointwise(Kind.RELU, X), {"x0": "bfloat16", "y0": "bfloat16", "mask": "uint8"}
        assert kernels.takes(record, "forward", all_narrow, ()) == {"x0", "y0"}
        assert not kernels.takes(record, "forward", {**all_narrow, "x0": "float32"}, ())
        assert not kernels.takes(record, "backward", all_narrow, ())
        assert bool(kernels.takes(record, "forward", all_narrow, ("y0",))) == adds
