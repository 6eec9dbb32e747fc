"""Faults by what their rows say of them; nothing here or elsewhere in correlation names one."""

from collections.abc import Mapping

from gpuvigil.faults import FAULTS, About, Link, Mended, Shared, Shows, Sign, where
from gpuvigil.model import EventKind

# Nobody hears from the node.
SILENCES = where(lambda row: row.shows is Shows.UNHEARD)
SWITCHES = where(lambda row: row.about is About.SWITCH)
# Also those of a port of which a switch may be the cause.
AT_SWITCHES = where(lambda row: row.shared is Shared.SWITCH)
# About ports, or named by them.
OF_PORTS = where(lambda row: row.about in {About.PORT, About.SWITCH})
OF_LINKS = where(lambda row: row.about is About.PORT)
LINKS_DOWN = where(lambda row: Sign.LINK_DOWN in row.signs)
# A link that is gone, for good or again and again; and one that is there, and bad.
LINKS_LOST = where(lambda row: row.link in {Link.STATE, Link.FLAPS} and row.about is About.PORT)
BAD_LINKS = where(lambda row: Sign.LINK_BAD in row.signs)
# Of these what only the link itself does, and no other; and what its module is.
WORN_LINKS = where(lambda row: Sign.LINK_BAD in row.signs and Sign.LINK_WAITS not in row.signs)
MODULES_BAD = where(lambda row: Sign.MODULE_BAD in row.signs)
# What is wrong with a link itself, whatever its switch does.
OWN_OF_LINKS = LINKS_LOST | WORN_LINKS | MODULES_BAD
# A switch of whose ports none carries anything.
SWITCHES_DOWN = where(
    lambda row: (
        row.about is About.SWITCH
        and row.explains is not None
        and Sign.LINK_DOWN in row.explains.signs
    )
)
# One of whose ports several wait.
SWITCHES_FULL = where(
    lambda row: (
        row.about is About.SWITCH
        and row.explains is not None
        and Sign.LINK_WAITS in row.explains.signs
    )
)
WITHOUT_LINK = LINKS_DOWN | SWITCHES_DOWN
# A job waits for one of its GPUs, for a reason that others may tell.
SLOW_JOBS = where(lambda row: Sign.SLOW_JOB in row.signs)
STALLED_JOBS = where(lambda row: Sign.JOB_STALLED in row.signs)
TOLD_BY_XID = where(lambda row: EventKind.XID in row.told_by)
# Of several nodes, or GPUs of a node, one cause: that one of them is silent explains nothing of the others.
SHARED = where(lambda row: row.shared is not Shared.NO)
# What whoever is told of it ends by a reset or a reboot, which may not hold.
REPAIRED = where(lambda row: row.mended is Mended.ALWAYS)
OF_RACKS = where(lambda row: row.shared is Shared.RACK)


def _explained_by(cause: str) -> frozenset[str]:
    explains = FAULTS[cause].explains
    if explains is None:
        return frozenset()
    if explains.everything:
        return frozenset(FAULTS) - {cause}
    return where(lambda row: not explains.signs.isdisjoint(row.signs))


EXPLAINED_BY: Mapping[str, frozenset[str]] = {cause: _explained_by(cause) for cause in FAULTS}
