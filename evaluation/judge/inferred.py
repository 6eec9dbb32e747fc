"""The faults that must be inferred: one with its own Xid, counter or setting needs no inference."""

from simulator.fleet.kinds import KINDS, OF_SWITCHES

NAMES_ITSELF = frozenset(kind.key for kind in (KINDS | OF_SWITCHES).values() if kind.names_itself)


def is_inferred(kind: str) -> bool:
    """Return whether a kind of fault must be concluded from something other than a sign of its own."""
    return kind not in NAMES_ITSELF
