"""Which switch is at the other end of each cable, as a running lldpd has learnt by LLDP.

`lldpcli -f json0` writes every value as a list (lldpcli(8)); asking takes access to lldpd's socket,
which packages give to root and to a group of their own. Where a switch sends its MAC address as the
identifier of its port, it puts the port's name in the description (IEEE 802.1AB, 8.5.3, 8.5.5).
"""

import json
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

_NAMES = frozenset({"ifname", "ifalias", "local"})
_SWITCHES = frozenset({"Bridge", "Router"})
_MOST = 256
_LONGEST = 255  # of a name, in characters: IEEE 802.1AB, 8.5.6


class Neighbour(NamedTuple):
    """The switch and port that an interface of this node is plugged into."""

    interface: str
    switch: str
    port: str | None


class Heard(NamedTuple):
    """What lldpd knows, or why that is unknown; neither where there is no lldpd to ask."""

    neighbours: tuple[Neighbour, ...] | None = None
    why_not: str = ""


def ask(program: str, seconds: float) -> Heard:
    """Ask lldpd through its own program, which is killed after `seconds`."""
    found = _found(program)
    if found is None:
        return Heard()
    # Most nodes have no lldpd, and each look would pay for this import.
    import subprocess  # noqa: PLC0415

    words = [found, "-f", "json0", "show", "neighbors"]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return Heard(why_not=f"{program} does not answer")
    except OSError as error:
        return Heard(why_not=f"{program}: {error.strerror}")
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        # Without the time at the start of the line, by which all lines would differ.
        last = said[-1].partition("]")[2].strip() or said[-1] if said else ""
        return Heard(why_not=last or f"{program} ended with {done.returncode}")
    try:
        return Heard(parse(done.stdout.decode(errors="replace")))
    except ValueError as error:
        return Heard(why_not=f"{program}: {error}")


def _found(program: str) -> str | None:
    """Return the program's path, even where only root's search path would find it; else None."""
    if not program or "/" in program:
        return program or None
    for folder in (*os.get_exec_path(), "/usr/sbin"):
        place = os.path.join(folder, program)
        if os.path.isfile(place):
            return place
    return None


def parse(text: str) -> tuple[Neighbour, ...]:
    """Parse the output of `lldpcli -f json0 show neighbors`; ValueError for anything else.

    An interface with several neighbours, as behind a bridge, has no known neighbour.
    """
    try:
        told = [
            (str(interface["name"]), chassis, port)
            for whole in json.loads(text)["lldp"]
            for interface in whole.get("interface", ())
            for chassis in interface.get("chassis", ())
            for port in interface.get("port", ({},))
        ]
        # Switches by interface, and whatever else is heard there.
        found: dict[str, tuple[set[Neighbour], set[Neighbour]]] = {}
        for name, chassis, port in told:
            heard = Neighbour(name[:_LONGEST], _name(chassis), _port(port))
            switches, others = found.setdefault(name, (set(), set()))
            if heard.switch:
                (switches if _is_switch(chassis) else others).add(heard)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no answer of lldpd: {error!r}") from error
    kept = [switches or others for switches, others in found.values()]
    sure = [one for heard_there in kept if len(heard_there) == 1 for one in heard_there]
    return tuple(sorted(sure, key=lambda one: one.interface)[:_MOST])


def _is_switch(chassis: Any) -> bool:
    """Return whether the chassis says it bridges or routes; a network card with LLDP does neither."""
    capabilities = chassis.get("capability", ())
    return any(one.get("enabled") and one.get("type") in _SWITCHES for one in capabilities)


def _name(chassis: Any) -> str:
    names = [*_values(chassis, "name"), *_values(chassis, "id")]
    return names[0] if names else ""


def _port(port: Any) -> str | None:
    named = [one for one in port.get("id", ()) if one.get("type") in _NAMES]
    names = [*_values({"id": named}, "id"), *_values(port, "descr"), *_values(port, "id")]
    return names[0] if names else None


def _values(whole: Any, key: str) -> Iterator[str]:
    for one in whole.get(key, ()):
        value = str(one.get("value", "")).strip()[:_LONGEST]
        if value.isprintable() and value:
            yield value
