"""Refuses names of other commands, with those here: the verbs and flags of `caffe`, and options of plan-graph."""

from __future__ import annotations

from collections.abc import Sequence

from layermem.errors import InputError

GRAPH_OPTIONS = ("--objective", "--family", "--model", "--time-limit")  # of plan-graph
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
DATA_OPTIONS = {
    "resize_height": "--resize HxW",
    "resize_width": "--resize HxW",
    "encode_type": "--encode-type",
    "check_size": "--check-size",
}  # flags of convert_imageset


def refuse_other_names(words: Sequence[str]) -> None:
    """Raise InputError with the name here, for the first name of another command."""
    verb, options = (words[0], words[1:]) if words else ("", [])
    if verb in ("caffe", "plan-graph"):  # one takes Caffe's names, and the other has a --model of its own
        return
    if verb in CAFFE_VERBS:
        what = f"`layermem {CAFFE_VERBS[verb]}` here, or `layermem caffe {verb}` with Caffe's flags"
        raise InputError(f"Caffe's '{verb}' is {what}; use one of them")
    for option in (word.partition("=")[0] for word in options if word.startswith("-")):
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
