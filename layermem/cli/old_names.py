"""Refuses renamed options and the flags of the `caffe` command, with the current names."""

from __future__ import annotations

from collections.abc import Sequence

from layermem.errors import InputError

RENAMED = {
    "--again": "--recompute",
    "--deepest": "--grow depth",
    "--most": "--max",
    "--net-level": "--level",
    "--net-stage": "--stage",
    "-t": "--objective",
}
RENAMED_OF_VERB = {("plan", "--graph"): "the verb `layermem plan-graph FILE`", ("train", "--graph"): "--cuda-graph"}
GRAPH_OPTIONS = ("--objective", "--family", "--model", "--time-limit")  # options of plan-graph; earlier of plan
CAFFE_OPTIONS = {
    "solver": "--solver",
    "model": "--net",
    "weights": "--weights",
    "snapshot": "--snapshot",
    "iterations": "--iterations",
    "phase": "--phase",
    "level": "--level",
    "stage": "--stage",
    "gpu": "--device cuda",
    "sigint_effect": "--sigint-effect",
    "sighup_effect": "--sighup-effect",
}
CAFFE_VERBS = {
    "device_query": "devices",
    "convert_imageset": "data images",
    "compute_image_mean": "data mean",
    "extract_features": "predict --blob B -o F.npz",
    "upgrade_net_proto_text": "convert",
    "upgrade_net_proto_binary": "convert",
    "upgrade_solver_proto_text": "convert",
}
CAFFE_COMMANDS = ("train", "test", "time")
CONVERSIONS = ("images", "labels", "mean")  # parts of the verb data; earlier of convert
DATA_OPTIONS = {
    "resize_height": "--resize HxW",
    "resize_width": "--resize HxW",
    "encode_type": "--encode-type",
    "check_size": "--check-size",
}  # flags of convert_imageset


def refuse_old_names(words: Sequence[str]) -> None:
    """Raise InputError with the current name, for the first old name on a command line."""
    verb, options = (words[0], words[1:]) if words else ("", [])
    if verb == "caffe":  # takes Caffe's names
        return
    if verb in CAFFE_VERBS:
        what = f"`layermem {CAFFE_VERBS[verb]}` here, or `layermem caffe {verb}` with Caffe's flags"
        raise InputError(f"Caffe's '{verb}' is {what}; use one of them")
    if verb == "convert" and options and options[0] in CONVERSIONS:
        raise InputError(f"`layermem convert {options[0]}` was renamed; use `layermem data {options[0]}`")
    for option in (word.partition("=")[0] for word in options if word.startswith("-")):
        new = RENAMED_OF_VERB.get((verb, option)) or RENAMED.get(option)
        if new:
            raise InputError(f"option {option} was renamed; use {new}")
        if verb == "plan-graph" and option in GRAPH_OPTIONS:
            continue
        if verb == "plan" and option in GRAPH_OPTIONS:
            raise InputError(
                f"option {option} belongs to `layermem plan-graph`; for a net, use --strategy recompute, "
                "recompute-exact or recompute-approx"
            )
        ours = (DATA_OPTIONS if verb == "data" else CAFFE_OPTIONS).get(option.lstrip("-"))
        if ours and option != ours:
            more = f"`layermem {verb} --help` lists all options"
            if verb in CAFFE_COMMANDS:
                more = f"`layermem caffe {verb}` takes Caffe's flags, and {more}"
            raise InputError(f"Caffe's '{option}' is written {ours} here; {more}")


def objective(text: str) -> str:
    """Parse --objective; InputError for T and M of earlier versions."""
    words = {"T": "time", "M": "memory"}
    if text in words:
        raise InputError(f"objective '{text}' was renamed; use --objective {words[text]}")
    return text


def stages(names: Sequence[str]) -> list[str]:
    """Return the NetState stages of --stage; InputError for a glob, which --stage took in earlier versions."""
    stages = [name for text in names for name in text.replace(",", " ").split()]
    for name in stages:
        if any(letter in name for letter in "*?["):
            raise InputError(f"--stage turns on a NetState stage, and '{name}' is a glob; use --segment-ends")
    return stages
