"""Makes calls that a driver refuses: python rules.py <image of kernels/elementwise.cu> <shared memory of a block>
<name>..

Prints a line for each name with the result of its calls: `ok` or the number of the error.  Each has its own process and
driver.
"""

from __future__ import annotations

import os
import sys

from tests.emulator.rules import captures, contexts, kernels, memory, streams  # noqa: F401  (add their rules)
from tests.emulator.rules.calls import RULES, Refused, call, context_of, driver


def outcome(name: str) -> str:
    driver.cuInit(0)
    try:
        call("cuCtxPushCurrent_v2", context_of(0))
        RULES[name]()
    except Refused as error:
        return str(*error.args)
    return "ok"


def main() -> None:
    for name in sys.argv[3:]:
        sys.stdout.flush()
        if not (child := os.fork()):
            print(outcome(name), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            print(f"ended with {status}")


if __name__ == "__main__":
    main()
