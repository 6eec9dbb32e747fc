"""Which neighbours of a switch are hosts: a port for management has a neighbour that is none, too."""

from collections.abc import Iterable, Mapping

from .switch import Switch, SwitchPort

# So many of a spine's neighbours may be no switches that are read: for management, and one beside it.
_FEW = 2
# Of fewer switches beside it is not known what most of them see.
_LEAST = 2
Place = tuple[str, str]  # cluster and name of a switch


def hosts_by_switch(switches: Iterable[Switch]) -> Mapping[Place, frozenset[str]]:
    """The names of the hosts at each switch.

    Where a switch has hardly a neighbour but switches, it is a spine. What it and most of the switches
    beside it see is a network for management, at whichever switch; and what it has beside that is no host
    where most of them have more.
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
    """Who is at the other end, where it is no switch that is read; empty where nobody knows."""
    words = () if port.at_switch else port.peer.split()
    return words[0] if words else ""


def _are_most(those: list[bool]) -> bool:
    return 2 * sum(those) > len(those)
