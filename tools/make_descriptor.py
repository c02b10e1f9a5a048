"""Compile layermem/proto/caffe.proto to the descriptor that the package ships, layermem/proto/caffe.bin.

    python tools/make_descriptor.py            write it
    python tools/make_descriptor.py --check    exit 1 unless the file is up to date

Needs grpcio-tools (the `dev` extra), which contains protoc; users of layermem need neither.
"""

import argparse
import sys
import tempfile
from pathlib import Path

PROTO = Path(__file__).resolve().parents[1] / "layermem" / "proto"


def compile_descriptor() -> bytes:
    """The serialized FileDescriptorSet of caffe.proto; independent of the version of protoc (25 to 35)."""
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "caffe.bin"
        if protoc.main(["protoc", f"-I{PROTO}", f"--descriptor_set_out={output}", "caffe.proto"]):
            raise SystemExit("protoc failed on caffe.proto; see its message above")
        return output.read_bytes()


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 unless the file is up to date")
    arguments = parser.parse_args(words)
    shipped, fresh = PROTO / "caffe.bin", compile_descriptor()
    if arguments.check:
        return int(not shipped.exists() or shipped.read_bytes() != fresh)
    shipped.write_bytes(fresh)
    print(f"{shipped}: {len(fresh)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
