"""Selects the layers of a net by phase, level and stages: include and exclude rules against a NetState.

A layer without rules is included; a layer with include rules if one is met; with exclude rules unless one is met.

source  Caffe net.cpp, FilterNet and StateMeetsRule
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from layermem.errors import InputError
from layermem.proto.read import NetFile
from layermem.proto.schema import PHASES, Message, NetParameter, NetState

Phase = Annotated[str, "checked by phase_number"]  # as users write it


def phase_number(phase: Phase) -> int:
    """The number of a phase by its name, in capitals or not."""
    name = phase.upper() if isinstance(phase, str) else ""
    if name not in PHASES:
        raise InputError(f"unknown phase {phase!r} (choose from {', '.join(PHASES)})")
    return PHASES[name]


def filter_net(net: NetFile, phase: str | int, level: int = 0, stages: Sequence[str] = ()) -> NetFile:
    """The net for `phase` ("TRAIN", "TEST" or its number), `level` and `stages`.

    Stages in the file itself (`state { stage: ... }`) are added; its phase and level are ignored, as in Caffe.
    """
    number = phase_number(phase) if isinstance(phase, str) else phase
    if number not in PHASES.values():
        raise InputError(f"unknown phase '{phase}' (choose from {', '.join(PHASES)})")
    if not -(2**31) <= level < 2**31:
        raise InputError(f"level {level} is not a number of 32 bits; give one from -2147483648 to 2147483647")
    for stage in stages:
        if not _is_text(stage):
            raise InputError(f"stage {stage!a} has characters that are not UTF-8; write plain ones")
    state = NetState(phase=number, level=level, stage=[*net.message.state.stage, *stages])
    return filter_by_state(net, state)


def _is_text(name: str) -> bool:
    """Whether a message can hold `name`: an undecodable byte of a command line is a lone surrogate."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def filter_by_state(net: NetFile, state: Message) -> NetFile:
    """The net with the layers that `state` (a NetState) includes, with their lines; its message holds the state."""
    kept = [index for index in range(len(net.message.layer)) if is_included(net, index, state)]
    message = NetParameter()
    for field, value in net.message.ListFields():
        if field.name == "layer":
            message.layer.extend(value[index] for index in kept)
        # These were upgraded to layers.
        elif field.name not in ("state", "layers", "input", "input_shape", "input_dim"):
            setattr(message, field.name, value)
    message.state.CopyFrom(state)
    unread = {new: net.unread[old] for new, old in enumerate(kept) if old in net.unread}
    return replace(net, message=message, lines=tuple(net.lines[index] for index in kept), unread=unread)


def is_included(net: NetFile, index: int, state: Message) -> bool:
    """Whether layer `index` is in the net for `state`."""
    layer = net.message.layer[index]
    if layer.include and layer.exclude:
        raise net.error(index, "has both include and exclude rules; keep one kind")
    if layer.include:
        return any(meets(state, rule) for rule in layer.include)
    return not any(meets(state, rule) for rule in layer.exclude)


def meets(state: Message, rule: Message) -> bool:
    """Whether a NetState satisfies every field that a NetStateRule sets."""
    stages = set(state.stage)
    return (
        (not rule.HasField("phase") or rule.phase == state.phase)
        and (not rule.HasField("min_level") or state.level >= rule.min_level)
        and (not rule.HasField("max_level") or state.level <= rule.max_level)
        and stages.issuperset(rule.stage)
        and stages.isdisjoint(rule.not_stage)
    )


def stages_for(net: NetFile, index: int, state: Message) -> tuple[str, ...]:
    """The stages that include layer `index`, which is not in the net for `state`; none if no stage does."""
    layer = net.message.layer[index]
    for rule in (*layer.include, *layer.exclude):
        stages = [stage for stage in (*rule.stage, *rule.not_stage) if stage not in state.stage]
        wanted = NetState(phase=state.phase, level=state.level, stage=[*state.stage, *stages])
        if is_included(net, index, wanted):
            return tuple(stages)
    return ()


def stages_of_rules(net: NetFile) -> list[str]:
    """The stages that rules of layers name, in their order."""
    rules = (rule for layer in net.message.layer for rule in (*layer.include, *layer.exclude))
    return [*dict.fromkeys(stage for rule in rules for stage in (*rule.stage, *rule.not_stage))]


def has_level_rules(net: NetFile) -> bool:
    """Whether the layers of the net depend on the level."""
    rules = (rule for layer in net.message.layer for rule in (*layer.include, *layer.exclude))
    return any(rule.HasField("min_level") or rule.HasField("max_level") for rule in rules)
