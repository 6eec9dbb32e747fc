"""What faults have to do with each other: what explains what, what ends it, and who mends it."""

from dataclasses import dataclass
from enum import Enum


class Sign(Enum):
    """What a fault may be no more than a sign of: what explains that, explains the fault."""

    HELD_UP = "something holds the GPU up"
    SLOWED = "something slows the GPU down"
    SLOW_JOB = "something slows its job down"
    JOB_STALLED = "its job waits for something, wherever that is"
    NO_ANSWER = "the GPU does not answer"
    GPU_BROKEN = "the GPU is broken"
    FABRIC = "the NVLink fabric is broken"
    LINK_DOWN = "the network link is down"
    LINK_BAD = "the network link is bad"
    LINK_WAITS = "the network link waits for others"
    LINK_LOSES = "the network link loses packets"
    MODULE_BAD = "the network link's module is too hot or broken"
    HOST_WAITED_FOR = "the host takes less than the network link brings"
    NO_ROOM = "the host's disk takes no more"
    TASKS_WAIT = "the host's tasks wait for something, as the kernel says"
    POWER_SHORT = "it gets less power than it may draw"


class Reach(Enum):
    """Of what a cause explains the signs."""

    HERE = "its own subject"
    BELOW = "everything on its node"
    MEMBERS = "the GPUs that it names, and their nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explains:
    """What follows from a fault, and is not told beside it."""

    reach: Reach
    signs: frozenset[Sign]
    everything: bool = False  # whatever it is, but for its own kind
    xids: frozenset[int] = frozenset()  # that GPUs below report because of it
    if_critical: bool = False  # a lesser one explains nothing
    unless_note: bool = False  # a note explains nothing


class Shared(Enum):
    """Whether one cause outside them may give it to several nodes or GPUs, and what that is."""

    NO = "each node's is its own"
    NODE = "no other node, but several GPUs of one"
    RACK = "the rack's air or power"  # what is left of it on one node is no other matter
    SWITCH = "a switch"
    NVLINK_DOMAIN = "the switches of an NVLink domain"
    SILENCE = "what nodes need to be heard"


class Mended(Enum):
    """Whether whoever is told of it drains the node and reboots it, which is silent meanwhile."""

    NO = "no"
    IF_CRITICAL = "if critical"
    ALWAYS = "always"


class Halts(Enum):
    """Whether a job that has it in one of its GPUs, or on its node, waits everywhere."""

    NO = "no"
    UNLESS_NOTE = "unless it is an info"
    SPREAD = "a job over several nodes"
    ALWAYS = "always"
