"""Which neighbours of a switch are hosts: a management port's neighbour is not one."""

from collections.abc import Iterable, Mapping

from .switch import Switch, SwitchPort

# A spine may have this many neighbours that are no known switches: for management, and one beside it.
_FEW = 2
# Fewer neighbouring switches than this do not show what most of them see.
_LEAST = 2
Place = tuple[str, str]  # cluster and name of a switch


def hosts_by_switch(switches: Iterable[Switch]) -> Mapping[Place, frozenset[str]]:
    """Return the names of the hosts at each switch.

    A switch with hardly any neighbour but switches is a spine. A name that a spine and most of its
    neighbouring switches see is on a management network, at every switch. What else the spine sees is no
    host if most of its neighbouring switches see more.
    """
    known = {(it.subject.cluster, it.subject.node): it for it in switches}
    seen = {
        place: {name for port in it.ports if (name := neighbour(port))}
        for place, it in known.items()
    }
    beside = {
        place: {
            far for port in it.ports if port.at_switch and (far := (place[0], port.peer)) in known
        }
        for place, it in known.items()
    }
    spines = [it for it in known if beside[it] and len(seen[it]) <= _FEW]
    shared = {
        (place[0], name)
        for place in spines
        for name in seen[place]
        if len(beside[place]) >= _LEAST and _are_most([name in seen[far] for far in beside[place]])
    }
    left = {
        place: frozenset(name for name in names if (place[0], name) not in shared)
        for place, names in seen.items()
    }
    bare = {
        place
        for place in spines
        if _are_most([len(left[far]) > len(left[place]) for far in beside[place]])
    }
    return {place: frozenset() if place in bare else names for place, names in left.items()}


def neighbour(port: SwitchPort) -> str:
    """Return who is at the other end, unless it is a known switch; "" when nobody knows."""
    words = () if port.at_switch else port.peer.split()
    return words[0] if words else ""


def _are_most(those: list[bool]) -> bool:
    return 2 * sum(those) > len(those)
