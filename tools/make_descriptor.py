"""Compile layermem/proto/caffe.proto to the descriptor that the package ships, layermem/proto/caffe.bin.

    python tools/make_descriptor.py            write it
    python tools/make_descriptor.py --check    exit 1 unless the file on disk is what the .proto says

Needs grpcio-tools (the `dev` extra), which carries protoc; users of layermem need neither.
"""

import sys
import tempfile
from pathlib import Path

PROTO = Path(__file__).resolve().parents[1] / "layermem" / "proto"


def compiled() -> bytes:
    """The serialized FileDescriptorSet of caffe.proto; the same bytes from every protoc we met (25 to 35)."""
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "caffe.bin"
        if protoc.main(["protoc", f"-I{PROTO}", f"--descriptor_set_out={made}", "caffe.proto"]):
            raise SystemExit("protoc refused caffe.proto; it says why above")
        return made.read_bytes()


def main(arguments: list[str]) -> int:
    shipped, fresh = PROTO / "caffe.bin", compiled()
    if "--check" in arguments:
        return int(not shipped.exists() or shipped.read_bytes() != fresh)
    shipped.write_bytes(fresh)
    print(f"{shipped}: {len(fresh)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
