"""Write VGG-16 or VGG-19 as prototxt: net, solver and the solver that runs it on noise.

    python tools/make_vgg.py 16        prototxt/vgg16/
    python tools/make_vgg.py 19        prototxt/vgg19/

Names are those of the weights that the authors published (conv1_1 ... fc8).
source  Simonyan, Zisserman: Very Deep Convolutional Networks for Large-Scale Image Recognition, 2014, nets D and E
"""

from __future__ import annotations

import argparse

from prototext import write

from layermem.nets.prototext import CONSTANT, WEIGHT_AND_BIAS, Net, dummy_solver, filler, solver

CONVOLUTIONS = {16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
WIDTHS = (64, 128, 256, 512, 512)


def vgg(depth: int) -> Net:
    net = Net(
        f"VGG-{depth}",
        notes=[
            f"VGG-{depth}: Simonyan, Zisserman, Very Deep Convolutional Networks for Large-Scale Image Recognition.",
            "Written by tools/make_vgg.py; change the tool, not this file.",
        ],
    )
    net.imagenet(224, 64, 50, unit=True)  # msra hands the size of the input on to the last layer
    x = "data"
    for stage, (count, width) in enumerate(zip(CONVOLUTIONS[depth], WIDTHS), start=1):
        for index in range(1, count + 1):
            # msra: from the paper's gaussian of 0.01 these nets start only after a shallower one was trained
            x = net.conv(
                f"conv{stage}_{index}", x, param=WEIGHT_AND_BIAS, num_output=width, kernel_size=3, pad=1,
                weight_filler=filler("msra"), bias_filler=CONSTANT,
            )  # fmt: skip
            x = net.relu(f"relu{stage}_{index}", x)
        x = net.pool(f"pool{stage}", x, "MAX", kernel_size=2, stride=2)
    for name, outputs in (("6", 4096), ("7", 4096), ("8", 1000)):
        x = net.fc(
            f"fc{name}", x, param=WEIGHT_AND_BIAS, num_output=outputs,
            weight_filler=filler("gaussian", std=0.01), bias_filler=CONSTANT,
        )  # fmt: skip
        if name != "8":
            x = net.dropout(f"drop{name}", net.relu(f"relu{name}", x), 0.5)
    net.imagenet_head(x)
    return net


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("depth", type=int, choices=sorted(CONVOLUTIONS))
    depth = parser.parse_args().depth
    text = solver(
        ["The paper's rate, decay and batch (256 is 4 times 64); a tenth of the rate thrice on the way."],
        net="train_val.prototxt", test_iter=1000, test_interval=5000, test_initialization=False, base_lr=0.01,
        lr_policy="step", gamma=0.1, stepsize=100000, max_iter=370000, momentum=0.9, weight_decay=0.0005, iter_size=4,
        display=20, snapshot=10000, snapshot_prefix=f"out/vgg{depth}",
    )  # fmt: skip
    noise = dummy_solver(
        f"out/vgg{depth}_dummy",
        base_lr=0.001,
        lr_policy="fixed",
        momentum=0.9,
        weight_decay=0.0005,
    )
    write(
        f"vgg{depth}", {"train_val.prototxt": str(vgg(depth)), "solver.prototxt": text, "solver_dummy.prototxt": noise}
    )


if __name__ == "__main__":
    main()
