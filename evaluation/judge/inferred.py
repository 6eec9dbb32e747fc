"""Which faults must be inferred: an Xid, a counter or a setting of its own is no inference."""

from simulator.fleet.kinds import KINDS, OF_SWITCHES

NAMES_ITSELF = frozenset(kind.key for kind in (KINDS | OF_SWITCHES).values() if kind.names_itself)


def is_inferred(kind: str) -> bool:
    """Whether a kind of fault is concluded from something else than a sign of its own."""
    return kind not in NAMES_ITSELF
