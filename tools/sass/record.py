"""What tests ask of the kernels' machine code, as docs/benchmarks/machine_code.tsv keeps it: a row for each kernel."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from layermem.backends.cuda import warpgroup
from layermem.backends.cuda.implicit_gemm import ENGINES, PACKED_BF16
from layermem.backends.cuda.kernel_images import build
from tools.sass.code import Code, Range

RECORD = Path(__file__).resolve().parents[2] / "docs/benchmarks/machine_code.tsv"
ARCHITECTURE = "90"
MODULES = (
    *(engine.module for engine in (*ENGINES.values(), PACKED_BF16)),
    *(f"convolution_{precision}_sm90a" for precision in warpgroup.PRECISIONS),
    f"{PACKED_BF16.module}_sm90a",
    "activation", "channel_sums", "communication", "depthwise", "dropout", "eltwise", "grouped", "inner_product",
    "l2norm", "loss", "mvn", "normalization", "pooling", "reduction", "resize", "shape", "softmax", "update",
    "weight_tiles",
)  # fmt: skip
PRODUCTS = ("HGMMA", "HMMA", "FFMA")
COPY, BARRIER = "LDGSTS", "SYNCS"
ISSUED = "issued"  # beside the opcodes: instructions in all
OF_MEMORY = ("LDG.", "LDGSTS", "LDL", "STG.", "STL")
OF_LOOPS = ("LD", "ST", "BAR", "DEPBAR", "F2F", "FFMA", "HGMMA", "HMMA", "I2F", "MUFU.RCP", "UBLKCP")
COLUMNS = ("module", "kernel", "in flight", "in loops", "a product", "memory", "copies", "products")


class Facts(NamedTuple):
    """What is known of a kernel.

    in_flight   loads from global memory at once, in the whole of it       in_loops   the most in a loop that loads
    a_product   instructions that a warp executes for each product of the model's main loop (tools/sass/engine.py), or 0
    memory      how often its opcodes for global and local memory occur
    copies      opcodes of the loop that copies to shared memory, those of OF_LOOPS and `issued`
    products    the same of the loop of products, which may be that loop; both are empty for others than convolutions
    """

    in_flight: int
    in_loops: int
    a_product: float
    memory: Counter[str]
    copies: Counter[str]
    products: Counter[str]

    @property
    def has_local_memory(self) -> bool:
        return any(opcode.startswith(("LDL", "STL")) for opcode in self.memory)


def facts_of(name: str, code: Code, a_product: float = 0.0) -> Facts:
    copies: Counter[str] = Counter()
    products: Counter[str] = Counter()
    if name.startswith("conv_"):
        product = next(each for each in PRODUCTS if any(opcode.startswith(each) for opcode in code.opcodes))
        if product == "HGMMA":  # producers and consumers have loops of their own
            loop, inner = code.smallest(COPY, BARRIER), code.smallest(product, BARRIER)
        else:
            inner = code.innermost(product)
            loop = code.around(inner, COPY)
        copies, products = _of_loop(code, loop), _of_loop(code, inner)
    in_loops = max(map(code.loads_in_flight, code.loading_loops), default=0)
    memory = _kept(code.counts(), OF_MEMORY)
    return Facts(code.loads_in_flight(), in_loops, round(a_product, 3), memory, copies, products)


def _of_loop(code: Code, loop: Range) -> Counter[str]:
    return _kept(code.counts(loop), OF_LOOPS) + Counter({ISSUED: loop[1] - loop[0]})


def _kept(counts: Mapping[str, int], beginnings: tuple[str, ...]) -> Counter[str]:
    return Counter({opcode: n for opcode, n in counts.items() if opcode.startswith(beginnings)})


def digest_of(module: str) -> str:
    """Stands for all that its machine code depends on, but for the compiler: the source without its comments."""
    lines = (re.sub(r"//.*", "", line).rstrip() for line in build.whole_source(module).splitlines())
    return hashlib.sha256(repr((list(filter(None, lines)), build.FLAGS)).encode()).hexdigest()[:16]


# -- the file ----------------------------------------------------------------------------------------------------------


class Record(NamedTuple):
    """The compiler, the digest of each module's source, and the facts of its kernels."""

    compiler: str
    digests: dict[str, str]
    modules: dict[str, dict[str, Facts]]


def read_record(path: Path = RECORD) -> Record:
    record = Record("", {}, {})
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        if line.startswith("# compiler "):
            record = record._replace(compiler=line.removeprefix("# compiler "))
        elif line.startswith("# source "):
            _, _, module, digest = line.split()
            record.digests[module] = digest
            record.modules[module] = {}
        elif not line.startswith(("#", COLUMNS[0] + "\t")):
            module, name, in_flight, in_loops, a_product, *counted = line.split("\t")
            memory, copies, products = map(_counter, counted)
            facts = Facts(int(in_flight), int(in_loops), float(a_product), memory, copies, products)
            record.modules[module][name] = facts
    return record


def written(record: Record) -> str:
    lines = [
        f"# machine code for sm_{ARCHITECTURE}, made by tools/machine_code.py; tools/sass/record.py has the columns",
        f"# compiler {record.compiler}",
        *(f"# source {module} {record.digests[module]}" for module in sorted(record.digests)),
        "\t".join(COLUMNS),
    ]
    for module, kernels in sorted(record.modules.items()):
        for name, facts in sorted(kernels.items()):
            counted = map(_text, (facts.memory, facts.copies, facts.products))
            numbers = map(str, (facts.in_flight, facts.in_loops, facts.a_product))
            lines.append("\t".join([module, name, *numbers, *counted]))
    return "\n".join(lines) + "\n"


def updated(
    record: Record, compiler: str, compile: Callable[[str], Mapping[str, Facts]], modules: Iterable[str] = MODULES
) -> Record:
    """The record of these modules: `compile` gives the facts of those whose source is another now."""
    digests = {module: digest_of(module) for module in modules}
    fresh = {
        module: record.modules[module] if record.digests.get(module) == digest else dict(compile(module))
        for module, digest in digests.items()
    }
    return Record(compiler, digests, fresh)


def _text(counts: Counter[str]) -> str:
    return " ".join(f"{opcode}={n}" for opcode, n in sorted(counts.items())) or "-"


def _counter(text: str) -> Counter[str]:
    parts = (part.rpartition("=") for part in text.split() if part != "-")
    return Counter({opcode: int(n) for opcode, _, n in parts})
