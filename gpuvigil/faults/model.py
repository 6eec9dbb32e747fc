"""The columns of the fault table: each policy about a fault is a column, and none has a default.

Whoever adds a fault decides every policy in its row, and services read their policy there. A fault's
key thus appears only in its row, its detector and their tests.
"""

import re
from dataclasses import dataclass
from enum import Enum

from ..model import EventKind, Severity
from .relations import Explains, Halts, Mended, Shared, Sign
from .selftest_script import SelftestScript

RELEASE = "gpuvigil collect --release 10m"
_RESET = re.compile(r"\breset (the GPU('s PCIe bus)?|all its GPUs( and switches)?)", re.IGNORECASE)


def with_release(action: str) -> str:
    """Return a first action; if it resets a GPU, with the command that makes the collector release it.

    A GPU cannot be reset while any process has it open. The release is limited in time, so it stands
    right before the reset, after other steps such as draining the node.
    """
    if RELEASE in action:
        return action
    return _RESET.sub(rf"\g<0> (right after {RELEASE} on the node)", action, count=1)


class About(str, Enum):
    """The subject of an incident of the fault, as long as nothing larger explains it."""

    GPU = "GPU"
    NODE = "node"
    PORT = "port"
    SWITCH = "switch"


class Stops(str, Enum):
    """The holders that a fault keeps from computing, whatever their program does: they are not blamed.

    A critical fault of any row keeps its GPU or node from computing, except one that only slows it.
    """

    NOBODY = "nobody"
    HOLDER = "who has the GPU or the node"
    SPREAD = "jobs over several nodes"
    STORAGE = "who waits for storage"  # from a warning on: an info keeps nobody waiting


class Shows(str, Enum):
    """The effect of a fault on a GPU's state; the first that applies decides, in this order."""

    UNHEARD = "unknown without data"  # nobody hears from the node
    HANGS = "unknown"  # what would tell the state does not answer
    LOST = "unavailable"
    LOST_IF_CRITICAL = "unavailable if critical"
    NO_DRIVER = "no data"  # without a driver nothing is measured, and nothing runs
    MEASURED = "as measured"


class Proof(str, Enum):
    """Whether a fault's verdict has been right often enough to be sent as a message anywhere.

    Faults that a recorded Xid, a counter or a setting shows by itself are proven; so are inferences that
    were judged on simulated fleets. An inference that was never judged starts in the digest.
    """

    PROVEN = "proven"
    ON_TRIAL = "on trial"  # until it was right at the site: see `gpuvigil.faults.trial`


class Confidence(str, Enum):
    """How far a fault's verdict can be trusted, by what it rests on."""

    REPORTED = "high, reported by the device, the driver or the kernel"
    INFERRED = "medium, inferred from other measurements"
    ON_TRIAL = "low, a rule that has yet to be right at this site"


class Blame(str, Enum):
    """What is to blame: a part of the machine that wears out, a user, or neither."""

    GPU = "GPU"
    NVSWITCH = "NVSwitch"
    COOLING = "cooling"
    POWER = "power"
    HOST_MEMORY = "host memory"
    LINK = "network link"
    HOLDER = "who holds it"  # the holder uses it for nothing
    USE = "how its holder uses it"
    PROGRAM = "a program"
    LEFTOVER = "a process of a job that is over"
    SETUP = "how it is set up"
    UNKNOWN = "not known"

    @property
    def is_hardware(self) -> bool:
        """Whether the fault counts towards a repeat offender and a return to the manufacturer."""
        return self in _HARDWARE

    @property
    def is_use(self) -> bool:
        """Whether the fault is about how a GPU is used, not about the machine."""
        return self in _USE


_HARDWARE = frozenset(
    {
        *(Blame.GPU, Blame.NVSWITCH, Blame.COOLING, Blame.POWER),
        *(Blame.HOST_MEMORY, Blame.LINK),
    }
)
_USE = frozenset({Blame.HOLDER, Blame.USE, Blame.PROGRAM, Blame.LEFTOVER})


class EndsBy(str, Enum):
    """The cause given for a job's end, when it ended with the fault on one of its nodes."""

    HARDWARE = "hardware"
    NODE = "node"
    NETWORK = "network"


@dataclass(frozen=True, slots=True)
class EndsJob:
    """A fault that may end a job: always, or only where its incident is critical.

    A single-node job that reported its exit code outlived whatever ends jobs by the node.
    """

    by: EndsBy
    always: bool = False


class Link(str, Enum):
    """The state of the link that the page of a port's fault shows."""

    NOTHING = "nothing"
    STATE = "up or down now"
    FLAPS = "up or down now, and how long it must be quiet"


class NodeCheckSign(str, Enum):
    """The sign of a fault in a single look at a node, without any history: `gpuvigil check`."""

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
    """Something that can be wrong: its title, its severity, and what to do first."""

    key: str
    title: str
    severity: Severity
    action: str
    source: str
    own_limit: bool  # a limit in it is gpuvigil's own, not a vendor's

    def __post_init__(self) -> None:
        object.__setattr__(self, "action", with_release(self.action))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(Described):
    """A row of the fault table: a kind of incident, and every policy that depends on the kind."""

    # Concluded from what others do or from what is missing, not reported by the device or the kernel:
    # a person looks before a node is taken out of service for it.
    inferred: bool
    proof: Proof
    detector: str  # the module of `analyzer/detectors` that finds it
    xids: tuple[int, ...]  # codes that are this fault alone, so that both are one incident
    about: About
    stops: Stops
    shows: Shows
    blame: Blame
    ends_job: EndsJob | None
    by_xid: bool  # each Xid counts as a fault of its own
    link: Link
    look: NodeCheckSign | None
    drains: bool  # `gpuvigil act` drains a node for it, unless configured otherwise
    loses_data: bool  # the node's collector may drop what it has read
    signs: frozenset[Sign]  # what the fault may merely be a sign of
    explains: Explains | None
    shared: Shared
    # Events that say the fault is there, until a cure; for Xids and SXids only codes that are sticky
    # and belong to no other fault.
    told_by: frozenset[EventKind]
    xids_alike: frozenset[int]  # an Xid that reports the same problem: one incident, not two
    cured_by: frozenset[EventKind]  # events that end it, whatever the metrics say
    mended: Mended
    halts: Halts
    slows: bool  # slows a GPU: from a warning on, it explains why its job is slow
    of_maker: bool  # if critical: what the manufacturer's support asks for is gathered
    settles_seconds: float  # how long possible explanations have to show up
    tuned_by: str | None  # the key of `[analyzer]` that makes the fault rarer when doubled
    simulated_as: tuple[str, ...]  # kinds of faults in the simulated fleet that it detects
    selftest: SelftestScript  # how the selftest makes the fault happen

    @property
    def confidence(self) -> Confidence:
        if self.proof is Proof.ON_TRIAL:
            return Confidence.ON_TRIAL
        return Confidence.INFERRED if self.inferred else Confidence.REPORTED
