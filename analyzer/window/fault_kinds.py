"""Sets of faults by the properties in their rows; no code here or in correlation names a fault."""

from collections.abc import Mapping

from gpuvigil.faults import FAULTS, About, Link, Mended, Shared, Shows, Sign, where
from gpuvigil.model import EventKind


def _with_causes(sign: Sign) -> tuple[frozenset[str], frozenset[str]]:
    """Return the faults that have a sign, and those that cause it, without what explains everything."""
    causes = where(
        lambda row: (
            row.explains is not None and sign in row.explains.signs and not row.explains.everything
        )
    )
    return where(lambda row: sign in row.signs), causes


# The node is not heard.
SILENCES = where(lambda row: row.shows is Shows.UNHEARD)
SWITCHES = where(lambda row: row.about is About.SWITCH)
# Faults of a switch, and those of a port that a switch may cause.
AT_SWITCHES = where(lambda row: row.shared is Shared.SWITCH)
# Faults of a port, and those of a switch, which are named by a port.
OF_PORTS = where(lambda row: row.about in {About.PORT, About.SWITCH})
OF_LINKS = where(lambda row: row.about is About.PORT)
LINKS_DOWN = where(lambda row: Sign.LINK_DOWN in row.signs)
# A link that is down for good or again and again; and one that is up, but bad.
LINKS_LOST = where(lambda row: row.link in {Link.STATE, Link.FLAPS} and row.about is About.PORT)
BAD_LINKS = where(lambda row: Sign.LINK_BAD in row.signs)
# Bad links whose sign comes from the link itself, and not from waiting; and bad modules.
WORN_LINKS = where(lambda row: Sign.LINK_BAD in row.signs and Sign.LINK_WAITS not in row.signs)
MODULES_BAD = where(lambda row: Sign.MODULE_BAD in row.signs)
# A link that carries less than before, so that its port waits and its host's receiver seems slow.
LINKS_SLOWER = where(
    lambda row: (
        row.about is About.PORT
        and row.explains is not None
        and Sign.HOST_WAITED_FOR in row.explains.signs
    )
)
# Signs of GPUs that get too little power, and the faults of their node's supply that cause them.
POWER_SHORT, POWER_LOST = _with_causes(Sign.POWER_SHORT)
# Signs of a disk that takes no more, and the faults that cause them.
ROOM_SHORT, ROOM_LOST = _with_causes(Sign.NO_ROOM)
# Faults of a link itself, whatever its switch does.
OWN_OF_LINKS = LINKS_LOST | WORN_LINKS | MODULES_BAD
# A switch that explains that its ports' links are down.
SWITCHES_DOWN = where(
    lambda row: (
        row.about is About.SWITCH
        and row.explains is not None
        and Sign.LINK_DOWN in row.explains.signs
    )
)
# A switch that explains that several of its ports wait.
SWITCHES_FULL = where(
    lambda row: (
        row.about is About.SWITCH
        and row.explains is not None
        and Sign.LINK_WAITS in row.explains.signs
    )
)
WITHOUT_LINK = LINKS_DOWN | SWITCHES_DOWN
# A job waits for one of its GPUs; other faults may tell the reason.
SLOW_JOBS = where(lambda row: Sign.SLOW_JOB in row.signs)
STALLED_JOBS = where(lambda row: Sign.JOB_STALLED in row.signs)
TOLD_BY_XID = where(lambda row: EventKind.XID in row.told_by)
# One cause for several nodes, or GPUs of a node: if one of them is silent, that explains nothing
# about the others.
SHARED = where(lambda row: row.shared is not Shared.NO)
# Faults that people end by a reset or a reboot, which may not hold; and those only where they are critical.
REPAIRED = where(lambda row: row.mended is Mended.ALWAYS)
REPAIRED_IF_CRITICAL = where(lambda row: row.mended is Mended.IF_CRITICAL)
OF_RACKS = where(lambda row: row.shared is Shared.RACK)
WARM_AIR = frozenset(key for key in OF_RACKS if Sign.HEAT in FAULTS[key].signs)


def _explained_by(cause: str) -> frozenset[str]:
    explains = FAULTS[cause].explains
    if explains is None:
        return frozenset()
    if explains.everything:
        return frozenset(FAULTS) - {cause}
    return where(lambda row: not explains.signs.isdisjoint(row.signs))


EXPLAINED_BY: Mapping[str, frozenset[str]] = {cause: _explained_by(cause) for cause in FAULTS}
