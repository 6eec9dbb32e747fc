"""The columns of the fault table: every policy about a fault is one of them, and none has a default.

Who adds a fault decides each of them in its row; what a service does about a fault it reads here, so
that no fault's key stands anywhere but in its row, its detector and their tests.
"""

import re
from dataclasses import dataclass
from enum import Enum

from ..model import EventKind, Severity
from .played import Played
from .relations import Explains, Halts, Mended, Shared, Sign

RELEASE = "gpuvigil collect --release 10m"
_RESET = re.compile(r"\breset (the GPU('s PCIe bus)?|all its GPUs( and switches)?)", re.IGNORECASE)


def with_release(action: str) -> str:
    """A first action; one that resets a GPU says how the collector lets go of it before.

    A GPU is not reset while any process has it open. The time runs from the command on, so it
    stands beside the reset, behind what is to be done before both, as draining the node.
    """
    if RELEASE in action:
        return action
    return _RESET.sub(rf"\g<0> (right after {RELEASE} on the node)", action, count=1)


class About(str, Enum):
    """What an incident of the fault is about, as long as nothing larger explains it."""

    GPU = "GPU"
    NODE = "node"
    PORT = "port"
    SWITCH = "switch"


class Stops(str, Enum):
    """Whom a fault keeps from computing, whatever his program does: he is not blamed for it.

    A critical fault of any row keeps its GPU or node from computing.
    """

    NOBODY = "nobody"
    HOLDER = "who has the GPU or the node"
    SPREAD = "jobs over several nodes"
    STORAGE = "who waits for storage"  # from a warning on: a note keeps nobody waiting


class Shows(str, Enum):
    """What the fault makes of a GPU's state; the first that holds decides, in this order."""

    UNHEARD = "unknown without data"  # nobody hears from the node
    HANGS = "unknown"  # what would tell the state does not answer
    LOST = "unavailable"
    LOST_IF_CRITICAL = "unavailable if critical"
    NO_DRIVER = "no data"  # without a driver nothing is measured, and nothing runs
    MEASURED = "as measured"


class Proof(str, Enum):
    """Whether a fault's verdict has been right often enough to be a message wherever it is said.

    What a recorded Xid, a counter or a setting names by itself is proven; so is an inference that was
    judged on simulated fleets. One that nobody has ever judged starts in the digest.
    """

    PROVEN = "proven"
    ON_TRIAL = "on trial"  # until it was right at the site: `gpuvigil.faults.trial`


class Blame(str, Enum):
    """What is to blame: a part of the machine that wears out, a user, or neither."""

    GPU = "GPU"
    NVSWITCH = "NVSwitch"
    COOLING = "cooling"
    POWER = "power"
    HOST_MEMORY = "host memory"
    LINK = "network link"
    HOLDER = "who holds it"  # for nothing
    USE = "how its holder uses it"
    PROGRAM = "a program"
    LEFTOVER = "a process of a job that is over"
    SETUP = "how it is set up"
    UNKNOWN = "not known"

    @property
    def is_hardware(self) -> bool:
        """Whether it counts towards a repeat offender, and for a return to the maker."""
        return self in _HARDWARE

    @property
    def is_use(self) -> bool:
        """Whether it is how a GPU is used, and nothing about the machine."""
        return self in _USE


_HARDWARE = frozenset(
    {
        *(Blame.GPU, Blame.NVSWITCH, Blame.COOLING, Blame.POWER),
        *(Blame.HOST_MEMORY, Blame.LINK),
    }
)
_USE = frozenset({Blame.HOLDER, Blame.USE, Blame.PROGRAM, Blame.LEFTOVER})


class EndsBy(str, Enum):
    """What a job ended by, when it ended with the fault on one of its nodes."""

    HARDWARE = "hardware"
    NODE = "node"
    NETWORK = "network"


@dataclass(frozen=True, slots=True)
class EndsJob:
    """A fault that may end a job: always, or only where its incident is critical.

    A job of one node that told its exit code outlived what ends by the node.
    """

    by: EndsBy
    always: bool = False


class Link(str, Enum):
    """What the page of a fault about a port says of the link."""

    NOTHING = "nothing"
    STATE = "up or down now"
    FLAPS = "up or down now, and how long it must be quiet"


class Look(str, Enum):
    """What one look at a node sees of a fault, without any history: `gpuvigil check`."""

    NO_DRIVER = "no driver"
    NO_FABRIC = "not in the fabric"
    DRIVER_HANGS = "driver hangs"
    GPU_GONE = "GPU gone"
    GPU_HANGS = "GPU hangs"
    XID = "Xid"
    SXID = "SXid"
    PORT_DOWN = "port down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """One thing that can be wrong: what it is called, who is told, and what to do first."""

    key: str
    title: str
    severity: Severity
    action: str
    source: str
    own_limit: bool  # a limit in it is gpuvigil's own and no vendor's

    def __post_init__(self) -> None:
        object.__setattr__(self, "action", with_release(self.action))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(Described):
    """A row of the fault table: what an incident can be, and everything that is decided by what it is."""

    # Concluded from what others do or from what is absent, not reported by the device or the kernel:
    # a person looks before a node is taken out of service for it.
    inferred: bool
    proof: Proof
    detector: str  # which finds it: a module of `analyzer/detectors`
    xids: tuple[
        int, ...
    ]  # codes that are this fault and no other, so that the two are one incident
    about: About
    stops: Stops
    shows: Shows
    blame: Blame
    ends_job: EndsJob | None
    by_xid: bool  # each Xid counts as a fault of its own
    link: Link
    look: Look | None
    drains: bool  # `gpuvigil act` drains a node for it, unless configured otherwise
    loses_data: bool  # the node's collector may drop what it has read
    signs: frozenset[Sign]  # what it may be no more than a sign of
    explains: Explains | None
    shared: Shared
    # Events that say it is there, and stand until a cure; of Xids and SXids those that are sticky
    # and no other fault's.
    told_by: frozenset[EventKind]
    xids_alike: frozenset[int]  # an Xid that tells the same matter: one incident, not two
    cured_by: frozenset[EventKind]  # events that end it, whatever the numbers say
    mended: Mended
    halts: Halts
    slows: bool  # a GPU, so that its job's slowness is called by it, once it is more than a note
    of_maker: bool  # if critical: what its maker's support asks for is gathered
    settles_seconds: float  # for how long what may explain it has the time to show
    tuned_by: str | None  # the key of `[analyzer]` that makes it rarer when it is doubled
    simulated_as: tuple[str, ...]  # kinds of the simulated fleet that it names
    played: Played  # how the selftest makes it happen
