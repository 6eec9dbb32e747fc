"""What Prometheus answered, as switches with their ports; what it does not say is not measured."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpuvigil.model import Switch, without_domain
from gpuvigil.numbers_in_words import natural

from ..fabric.seen import NotReadError, SeenPort, SeenSwitch
from ..fabric.switches import Switches
from .mapping import (
    ADMIN,
    COUNTERS,
    NAME,
    NEIGHBOUR,
    SPEED,
    STATE,
    SwitchMapping,
    Table,
    meant,
)

Place = tuple[str, str]
"""A switch and its port, as labels name them."""
LONGEST, _SHOWN = 200, 5  # characters of a name, and values
# A target's address with its port, which is no part of a switch's name.
_ADDRESS = re.compile(r"(\[[^\]]+\]|[^:]+):\d+")
_TARGET = "instance"  # as Prometheus calls what it scrapes
_DISABLED = "Disabled"  # as the tools of InfiniBand write it
_LARGEST = 2.0**63


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One series of an answer."""

    labels: Mapping[str, str]
    value: str


Answers = Mapping[str, Sequence[Sample]]
"""By table of a mapping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedSwitch:
    """A switch as one mapping tells of it; its ports and their neighbours by name.

    A port of which is not known whether it is up is not among them. Without a name it goes by the one
    that was known before.
    """

    name: str
    ports: Mapping[str, SeenPort]
    neighbours: Mapping[str, tuple[str, str]]
    exporter: str = ""  # the target that Prometheus had it from


def reported_switches(mapping: SwitchMapping, answers: Answers) -> dict[str, ReportedSwitch]:
    """The switches by the label that names them; NotReadError where there are none."""
    if not answers[STATE]:
        query = mapping.tables[STATE].query
        raise NotReadError(
            f"{mapping.where(STATE)}: Prometheus has no series for {query!r}; is the exporter"
            " scraped, and does it call it so?"
        )
    said = {
        name: _by_place(mapping, name, answers[name])
        for name in mapping.tables
        if name in answers and name != NAME
    }
    ports: dict[str, dict[str, SeenPort]] = defaultdict(dict)
    exporters: dict[str, str] = {}
    for (switch, port), samples in said[STATE].items():
        exporters[switch] = samples[0].labels.get(_TARGET, "")
        up = _is_up(mapping.tables[STATE], samples)
        known = ports[switch]
        if up is not None:
            known[port] = _port(mapping, said, (switch, port), up)
    if not any(ports.values()):
        raise NotReadError(_no_state(mapping, answers[STATE]))
    names = _names(mapping, answers)
    unnamed = NAME in mapping.tables
    neighbours = _neighbours(mapping, said.get(NEIGHBOUR, {}))
    return {
        switch: ReportedSwitch(
            name=names.get(switch, "" if unnamed else switch),
            ports=them,
            neighbours=neighbours[switch],
            exporter=exporters[switch],
        )
        for switch, them in ports.items()
    }


def readable(mapping: SwitchMapping, answers: Answers) -> tuple[Answers, tuple[str, ...]]:
    """Without the tables that cannot be read, as if they had not been asked, and why each cannot; the states stay."""
    said: dict[str, Sequence[Sample]] = {}
    why: list[str] = []
    for name, them in answers.items():
        try:
            if name != STATE:
                next(_labelled(mapping, name, them), None)
        except NotReadError as error:
            why.append(str(error))
        else:
            said[name] = them
    return said, tuple(why)


def silent(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Exporters of several switches that tell of none of them any more, with these.

    Both are exporters by switch. Those switches may be well: nobody passes on what they say.
    """
    known: dict[str, set[str]] = defaultdict(set)
    for switch, exporter in before.items():
        known[exporter].add(switch)
    return {
        exporter: frozenset(them)
        for exporter, them in known.items()
        if exporter and len(them) > 1 and them.isdisjoint(now) and exporter not in now.values()
    }


def _no_state(mapping: SwitchMapping, samples: Sequence[Sample]) -> str:
    values = sorted({_value(mapping.tables[STATE], it) for it in samples})
    shown = ", ".join(map(repr, values[:_SHOWN]))
    return f"{mapping.where(STATE)}: no port is up or down; the values are {shown}"


def missed(
    before: Switches, now: Collection[str], lost_after: timedelta, at: datetime
) -> frozenset[str]:
    """Switches that have had no series for less than `lost_after`: a scrape of them may have failed."""
    return frozenset(
        guid
        for guid, it in before.items()
        if guid not in now and it.lost_at is None and at - it.at < lost_after
    )


def together(
    found: Iterable[Mapping[str, ReportedSwitch]], known: Switches
) -> dict[str, SeenSwitch]:
    """The switches of all mappings by name, each with what is at the other ends of its cables.

    Of a switch of which two mappings tell, the first counts. `known`: what was seen before; a port
    keeps its number.
    """
    every: dict[str, ReportedSwitch] = {}
    for them in found:
        every = {**them, **every}
    own = {guid: it.name or _known_name(guid, known) for guid, it in every.items()}
    times = Counter(own.values())
    names = {guid: it if times[it] == 1 else f"{it} {guid}" for guid, it in own.items()}
    plugged = _plugged(every, _with_absent(names, known))
    seen = {}
    for guid, it in every.items():
        numbers = _numbers(it.ports, known.get(guid))
        ports = {numbers[name]: plugged[guid, name] for name in it.ports}
        seen[names[guid]] = SeenSwitch(guid=guid, ports=ports)
    return seen


def _known_name(guid: str, known: Switches) -> str:
    """That it had, without what told it from others; its GUID where it had none."""
    before = known.get(guid)
    return guid if before is None else before.subject.node.removesuffix(f" {guid}")


def _with_absent(names: Mapping[str, str], known: Switches) -> dict[str, str]:
    """With the switches that are not told of just now: cables to them are no hosts'."""
    absent = {guid: it.subject.node for guid, it in known.items() if guid not in names}
    taken = set(names.values())
    return {**{guid: name for guid, name in absent.items() if name not in taken}, **names}


def _labelled(
    mapping: SwitchMapping, name: str, samples: Sequence[Sample]
) -> Iterator[tuple[str, Sample]]:
    """Each series with its switch; those without a label that is asked for are left out.

    NotReadError where all are.
    """
    table = mapping.tables[name]
    port = () if name == NAME else (mapping.port,)
    asked = (mapping.switch, *port, table.value_label, table.label, table.system, table.port)
    needed = [label for label in asked if label]
    found = False
    for it in samples:
        if all(it.labels.get(label) for label in needed):
            found = True
            yield without_port(it.labels[mapping.switch]), it
    if samples and not found:
        first = samples[0].labels
        label = next(label for label in needed if not first.get(label))
        has = ", ".join(sorted(set(first) - {"__name__"}))[:LONGEST] or "none"
        raise NotReadError(
            f"{mapping.where(name)}: the answer has no label {label!r}; its labels are {has}"
        )


def _by_place(
    mapping: SwitchMapping, name: str, samples: Sequence[Sample]
) -> dict[Place, list[Sample]]:
    found: dict[Place, list[Sample]] = defaultdict(list)
    for switch, it in _labelled(mapping, name, samples):
        found[switch, it.labels[mapping.port][:LONGEST]].append(it)
    return found


def without_port(address: str) -> str:
    whole = _ADDRESS.fullmatch(address)
    return (whole[1] if whole else address)[:LONGEST]


def _value(table: Table, sample: Sample) -> str:
    """As mapping files write it: `1`, or a label's text."""
    if table.value_label:
        return meant(sample.labels.get(table.value_label, ""))
    number = finite(sample.value)
    return "" if number is None else f"{number:g}"


def _is_up(table: Table, samples: Iterable[Sample]) -> bool | None:
    """None where it is neither up nor down, or said to be both."""
    values = {_value(table, it) for it in samples}
    up, down = not values.isdisjoint(table.up), not values.isdisjoint(table.down)
    return None if up == down else up


def _port(
    mapping: SwitchMapping, said: Mapping[str, Mapping[Place, list[Sample]]], place: Place, up: bool
) -> SeenPort:
    counted = {
        name: _count(mapping.tables[name], said[name].get(place, ())) if name in said else None
        for name in COUNTERS
    }
    speed = _speed(mapping.tables[SPEED], said[SPEED].get(place, ())) if SPEED in said else None
    return SeenPort(
        name=place[1],
        up=up,
        physical_state=_physical_state(mapping, said.get(ADMIN), place),
        bits_per_second=speed if up else None,
        counters=None if all(it is None for it in counted.values()) else counted,
    )


def _physical_state(
    mapping: SwitchMapping, said: Mapping[Place, list[Sample]] | None, place: Place
) -> str | None:
    """Of what cannot be read just now nothing is known."""
    admin = mapping.tables.get(ADMIN)
    if admin is None:
        return ""
    if said is None:
        return None
    off = any(_value(admin, it) in admin.disabled for it in said.get(place, ()))
    return _DISABLED if off else ""


def finite(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and 0.0 <= number < _LARGEST else None


def _count(table: Table, samples: Iterable[Sample]) -> int | None:
    """The largest of what is said: counters only grow, and two exporters may read at two moments."""
    numbers = [number for it in samples if (number := finite(it.value)) is not None]
    return round(max(numbers) * table.times) if numbers else None


def _speed(table: Table, samples: Iterable[Sample]) -> int | None:
    """Bits per second; None where two are said, or none that is one."""
    numbers = {
        table.values.get(_value(table, it)) if table.value_label else finite(it.value)
        for it in samples
    }
    (number,) = numbers if len(numbers) == 1 else (None,)
    return round(number * table.times) if number else None


def _names(mapping: SwitchMapping, answers: Answers) -> dict[str, str]:
    """What switches call themselves, by the label that names them."""
    if NAME not in answers:
        return {}
    named_by = mapping.tables[NAME].label
    named = _labelled(mapping, NAME, answers[NAME])
    return {switch: it.labels[named_by][:LONGEST] for switch, it in named}


def _neighbours(
    mapping: SwitchMapping, said: Mapping[Place, list[Sample]]
) -> dict[str, dict[str, tuple[str, str]]]:
    """By switch and port who is at the other end, and at which port; not where several are."""
    found: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
    for (switch, port), samples in said.items():
        table = mapping.tables[NEIGHBOUR]
        heard = {(_word(it.labels[table.system]), _word(it.labels[table.port])) for it in samples}
        if len(heard) == 1:
            found[switch][port] = heard.pop()
    return found


def _word(text: str) -> str:
    """One word, as the other end of a cable is written in two."""
    return "_".join(text.split())[:LONGEST]


def _by_short_name(called: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
    """The GUIDs by the names without domains, of which several switches may have the same."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, guid in called.items():
        found[without_domain(name)].append(guid)
    return found


def _plugged(
    every: Mapping[str, ReportedSwitch], names: Mapping[str, str]
) -> dict[Place, SeenPort]:
    """Every port with what is at its other end, as far as it is known.

    Of a cable between two switches one end may know it alone: then the other one knows it, too.
    """
    called = {name.casefold(): guid for guid, name in names.items()}
    shortly = _by_short_name(called)
    found = {(guid, port): seen for guid, it in every.items() for port, seen in it.ports.items()}
    back: dict[Place, Place] = {}
    heard = (
        ((guid, port), *far)
        for guid, it in every.items()
        for port, far in it.neighbours.items()
        if (guid, port) in found
    )
    for place, system, far_port in heard:
        low = system.casefold()
        alike = [called[low]] if low in called else shortly.get(without_domain(low), ())
        if not alike:
            found[place] = replace(
                found[place], peer=f"{without_domain(system)} {far_port}".strip()
            )
        elif len(alike) == 1:  # of several nobody knows which it is
            found[place] = _at(found[place], (alike[0], far_port), names)
            back[alike[0], far_port] = place
    for place, there in back.items():
        if place in found and not found[place].peer:
            found[place] = _at(found[place], there, names)
    return found


def _at(port: SeenPort, there: Place, names: Mapping[str, str]) -> SeenPort:
    """With a port of another switch at its other end."""
    guid, name = there
    return replace(port, peer=names[guid], peer_guid=guid, peer_port_name=name, at_switch=True)


def _numbers(names: Iterable[str], before: Switch | None) -> dict[str, int]:
    """Of each port the number that it had; a new one has its own where its name is one."""
    known = {port.name: port.number for port in before.ports} if before else {}
    taken = set(known.values())
    found = {}
    for name in sorted(names, key=natural):
        number = known.get(name)
        if number is None:
            own = int(name) if name.isascii() and name.isdigit() and len(name) < 6 else 0
            number = own if own and own not in taken else max(taken, default=0) + 1
            taken.add(number)
        found[name] = number
    return found
