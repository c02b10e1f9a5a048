"""Write a net as prototxt: train_val.prototxt, solver.prototxt and solver_dummy.prototxt, which runs it on noise.

python tools/make_net.py vgg16                            prototxt/vgg16/
python tools/make_net.py densenet161                      densenet121, densenet169, densenet201, vgg19
python tools/make_net.py alexnet                          caffenet, googlenet, unet, pspnet, autoencoder, siamese
python tools/make_net.py lstm_lm                          lstm1000, segnet, wrn28_10, faster_rcnn
python tools/make_net.py inception_v3                     squeezenet10, squeezenet11, mobilenet1, mobilenet2
python tools/make_net.py resnext50                        resnext101, ssd300, ssd512
python tools/make_net.py resnet1517                       any depth of 3 * blocks + 2, from 38 on
python tools/make_net.py resnet302 --blocks 3,30,64,3     any split of the blocks over the four stages
python tools/make_net.py resnet20 --cifar                 the CIFAR-10 family, of depth 6n + 2
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from layermem.errors import InputError
from layermem.nets import resnet
from layermem.nets.catalog import net_files
from layermem.nets.prototext import NetFiles

ROOT = Path(__file__).resolve().parent.parent / "prototxt"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--folder", help="folder below prototxt/ (default: NAME)")
    options = parser.add_argument_group("residual nets")
    options.add_argument("--cifar", action="store_true", help="the CIFAR-10 family instead of the ImageNet family")
    options.add_argument("--blocks", help="blocks of the four ImageNet stages, as 3,4,6,3")
    options.add_argument("--batch", type=int, help="training batch (default: 32; CIFAR-10: 128)")
    arguments = parser.parse_args()
    write(arguments.folder or arguments.name, files_of(arguments))


def files_of(arguments: argparse.Namespace) -> NetFiles:
    match = re.fullmatch(r"resnet(\d+)", arguments.name)
    if match is None:
        return net_files(arguments.name)
    return resnet.net_files(
        int(match[1]),
        cifar10=arguments.cifar,
        blocks=tuple(map(int, arguments.blocks.split(","))) if arguments.blocks else None,
        batch=arguments.batch,
        folder=arguments.folder,
    )


def write(folder: str, files: NetFiles) -> None:
    """Write the files of a net below prototxt/, and print their paths."""
    place = ROOT / folder
    place.mkdir(parents=True, exist_ok=True)
    for name, text in files.texts().items():
        (place / name).write_text(text)
        print(f"prototxt/{folder}/{name}  {text.count(chr(10))} lines")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"make_net: {error}")
