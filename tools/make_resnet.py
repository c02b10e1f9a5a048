"""Write a residual network of any depth as prototxt: net, solver and the solver that runs it on noise.

    python tools/make_resnet.py 50                       prototxt/resnet50/
    python tools/make_resnet.py 1517                     prototxt/resnet1517/
    python tools/make_resnet.py 302 --blocks 3,30,64,3   any split over the four stages
    python tools/make_resnet.py 20 --cifar               prototxt/resnet20/   (20, 32, 44, 56, 110, ... 6n + 2)

ImageNet family (bottlenecks): depth = 3 * blocks + 2.  Names are those of the weights that the authors published
(res2a_branch2a, bn2a_branch2a, scale2a_branch2a, ...), so that `--weights` finds its layers.
CIFAR family (two 3x3 convolutions a block): depth = 6n + 2; where the width grows, the shortcut is a 1x1 projection.
source  He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, 2015
"""

from __future__ import annotations

import argparse
import sys

from prototext import write

from layermem.errors import InputError
from layermem.nets.prototext import dummy_solver, solver
from layermem.nets.resnet import cifar, imagenet, split


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("depth", type=int)
    parser.add_argument("--cifar", action="store_true", help="the CIFAR-10 family instead of the ImageNet family")
    parser.add_argument("--blocks", help="blocks of the four ImageNet stages, as 3,4,6,3")
    parser.add_argument("--batch", type=int, help="training batch (default 32; CIFAR 128)")
    parser.add_argument("--folder", help="folder below prototxt/ (default resnetDEPTH)")
    args = parser.parse_args()
    folder = args.folder or f"resnet{args.depth}"

    common = {"gamma": 0.1, "lr_policy": "multistep", "momentum": 0.9, "weight_decay": 0.0001}
    if args.cifar:
        net = cifar(args.depth, args.batch or 128, 100)
        notes = ["64,000 steps of batch 128, a tenth of the rate at 32,000 and 48,000: as in the paper."]
        plan = {"stepvalue": [32000, 48000], "max_iter": 64000, "test_iter": 100, "test_interval": 500}
    else:
        blocks = tuple(map(int, args.blocks.split(","))) if args.blocks else split(args.depth)
        if len(blocks) != 4 or min(blocks) < 1 or 3 * sum(blocks) + 2 != args.depth:
            sys.exit(
                f"make_resnet: four stages of {blocks} blocks make a depth of {3 * sum(blocks) + 2}, not {args.depth}"
            )
        net = imagenet(args.depth, blocks, args.batch or 32, 50 if args.depth < 1000 else 1)
        notes = ["600,000 steps, a tenth of the rate at 320,000 and 480,000; the paper's batch of 256 is 8 times 32."]
        test_iter = 1000 if args.depth < 1000 else 50000
        plan = {"stepvalue": [320000, 480000], "max_iter": 600000, "test_iter": test_iter, "test_interval": 5000}
        if not args.batch:
            plan["iter_size"] = 8
    text = solver(
        notes, net="train_val.prototxt", **plan, test_initialization=False, base_lr=0.1, **common, display=20,
        snapshot=10000, snapshot_prefix=f"out/{folder}",
    )  # fmt: skip
    noise = dummy_solver(f"out/{folder}_dummy", base_lr=0.01, lr_policy="fixed", momentum=0.9, weight_decay=0.0001)
    write(folder, {"train_val.prototxt": str(net), "solver.prototxt": text, "solver_dummy.prototxt": noise})


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"make_resnet: {error}")
