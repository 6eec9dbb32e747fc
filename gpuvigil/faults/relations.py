"""Relations between faults: what explains what, what ends a fault, and who mends it."""

from dataclasses import dataclass
from enum import Enum


class Sign(Enum):
    """A problem that a fault may merely be a sign of: what explains the problem explains the fault."""

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
    HEAT = "its node is not cooled enough"
    NO_ROOM = "the host's disk takes no more"
    TASKS_WAIT = "the host's tasks wait for something, as the kernel says"
    POWER_SHORT = "it gets less power than it may draw"


class Reach(Enum):
    """Where a cause explains signs."""

    HERE = "its own subject"
    BELOW = "everything on its node"
    MEMBERS = "the GPUs that it names, and their nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explains:
    """The signs that a fault explains, so that they are not reported beside it."""

    reach: Reach
    signs: frozenset[Sign]
    everything: bool = False  # every other fault, except of its own kind
    xids: frozenset[int] = frozenset()  # codes that GPUs below report because of the fault
    if_critical: bool = False  # below critical it explains nothing
    unless_note: bool = False  # an info explains nothing


class Shared(Enum):
    """Whether several nodes or GPUs may have a fault from one outside cause, and what that cause is."""

    NO = "each node's is its own"
    NODE = "no other node, but several GPUs of one"
    RACK = "the rack's air or power"  # what is left of it on one node is not a matter of its own
    SWITCH = "a switch"
    NVLINK_DOMAIN = "the switches of an NVLink domain"
    SILENCE = "what nodes need to be heard"


class Mended(Enum):
    """Whether a repair of the fault reboots the node, so that half an hour of silence is put down to it."""

    NO = "no"
    IF_CRITICAL = "if critical"
    ALWAYS = "always"


class Halts(Enum):
    """Whether a job with the fault on one of its GPUs, or its node, waits everywhere."""

    NO = "no"
    UNLESS_NOTE = "unless it is an info"
    SPREAD = "a job over several nodes"
    ALWAYS = "always"
