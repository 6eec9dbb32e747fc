"""A fabric's switches from look to look: what is new, what is gone, and since when."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from gpuvigil.model import UNREADABLE, Record, Subject, Switch, SwitchPort, readable

from .counts import changes, counts, last_errors
from .seen import SeenPort, SeenSwitch

# A switch that was taken away is forgotten, and a host's port that was left.
_LOST_KEPT, _LEFT_KEPT = timedelta(days=7), timedelta(days=1)
# Of counts that nobody read for so long nobody knows when they grew.
_LONGEST_GAP = timedelta(minutes=10)
# What is as it was is told again, so that its age says that somebody looks.
_REPORT_EVERY = timedelta(minutes=5)
# What has just changed is told with each look: the next one confirms it.
_YOUNG = timedelta(minutes=10)
# Where more of them are gone at once, it is this machine that has lost its way to them.
_MOST_GONE = 0.5

Switches = Mapping[str, Switch]
"""By GUID: a name may be changed."""


def is_cut_off(
    before: Switches, found: Mapping[str, SeenSwitch], unasked: Collection[str] = ()
) -> bool:
    """Whether so few of the switches answer that the reader's own way into the fabric is in doubt.

    Those that are `unasked` could not answer.
    """
    answered = {guid for guid, it in before.items() if it.lost_at is None}.difference(unasked)
    gone = answered - {it.guid for it in found.values()}
    return not found or len(gone) > _MOST_GONE * len(answered)


def merged(
    before: Switches,
    found: Mapping[str, SeenSwitch],
    cluster: str,
    at: datetime,
    doubted: Collection[str] = (),
) -> dict[str, Switch]:
    """The switches as they are now; one that does not answer keeps what it had.

    Of those that are `doubted` nothing new is said: they grow old.
    """
    now = {
        seen.guid: _switch(before.get(seen.guid), name, seen, cluster, at)
        for name, seen in found.items()
    }
    for guid, gone in before.items():
        lost_at = gone.lost_at or at
        if guid not in now and guid in doubted:
            now[guid] = gone
        elif guid not in now and at - lost_at < _LOST_KEPT:
            now[guid] = replace(gone, at=at, lost_at=lost_at)
    return _without_left(now, at)


def _without_left(now: Switches, at: datetime) -> dict[str, Switch]:
    """Without ports whose cable was moved elsewhere, or goes to what was forgotten."""
    plugged = {_other_end(port) for it in now.values() for port in it.ports if port.up}
    names = {it.subject.node for it in now.values()}

    def is_left(port: SwitchPort) -> bool:
        if port.up:
            return False
        moved = bool(port.peer_guid) and _other_end(port) in plugged
        if port.at_switch:
            return moved or port.peer not in names
        return moved or at - port.since >= _LEFT_KEPT

    return {
        guid: replace(it, ports=tuple(port for port in it.ports if not is_left(port)))
        for guid, it in now.items()
    }


def _other_end(port: SwitchPort) -> tuple[str, int, str]:
    return port.peer_guid, port.peer_port, port.peer_port_name


def _switch(
    before: Switch | None, name: str, seen: SeenSwitch, cluster: str, at: datetime
) -> Switch:
    known = {port.number: port for port in before.ports} if before else {}
    unread = before is not None and at - before.at > _LONGEST_GAP
    if unread:
        known = {n: replace(port, counts=()) for n, port in known.items()}
    ports = (
        _port(known.get(n), n, seen.ports[n], at) if n in seen.ports else known[n]
        for n in sorted({*known, *seen.ports})
    )
    return Switch(
        subject=Subject(cluster=cluster, node=name),
        at=at,
        guid=seen.guid,
        ports=tuple(port for port in ports if port is not None),
    )


def _port(
    before: SwitchPort | None, number: int, seen: SeenPort, at: datetime
) -> SwitchPort | None:
    """None for a port that never had a link: nobody has plugged anything in."""
    if not seen.up:
        if before is None:
            return None
        return replace(
            before,
            up=False,
            since=at if before.up else before.since,
            physical_state=before.physical_state
            if seen.physical_state is None
            else seen.physical_state,
            bits_per_second=None,
            lanes=None,
            counts=counts(before.counts, seen, at),
        )
    now = SwitchPort(
        number=number,
        up=True,
        since=at,
        name=seen.name,
        physical_state=seen.physical_state or "",
        peer=seen.peer,
        peer_guid=seen.peer_guid,
        peer_port=seen.peer_port,
        peer_port_name=seen.peer_port_name,
        at_switch=seen.at_switch,
        bits_per_second=seen.bits_per_second,
        lanes=seen.lanes,
        best_bits_per_second=seen.bits_per_second,
        counts=counts(before.counts if before else (), seen, at),
    )
    if before is None or not _is_same_cable(before, now):
        return now
    if not now.peer:  # it does not answer just now
        now = replace(
            now,
            peer=before.peer,
            peer_guid=before.peer_guid,
            peer_port=before.peer_port,
            peer_port_name=before.peer_port_name,
            at_switch=before.at_switch,
        )
    best = max(before.best_bits_per_second or 0, now.bits_per_second or 0)
    same = before.up and _is_same_speed(before, now.bits_per_second)
    return replace(now, best_bits_per_second=best or None, since=before.since if same else at)


def _is_same_speed(before: SwitchPort, now: int | None) -> bool:
    """One that is not known for a while is no other one."""
    known = before.bits_per_second or before.best_bits_per_second
    return now in {None, before.bits_per_second, known}


def _is_same_cable(before: SwitchPort, now: SwitchPort) -> bool:
    """By GUIDs; a name may be changed, and one that does not answer has none."""
    if before.peer_guid and now.peer_guid:
        return _other_end(before) == _other_end(now)
    return not now.peer or (before.peer, before.peer_id) == (now.peer, now.peer_id)


def changed_switches(reported: Switches, now: Switches) -> list[Switch]:
    """What differs from what was told, is young, or was not told for minutes; traffic alone is no news.

    Of one that goes by another name, or was forgotten, a last word: nothing is left to say of it.
    """
    at = max((switch.at for switch in now.values()), default=None)
    over = [
        replace(old, at=at, lost_at=None, ports=())
        for guid, old in reported.items()
        if at is not None and (guid not in now or now[guid].subject != old.subject)
    ]
    return over + [
        switch
        for guid, switch in now.items()
        if (old := reported.get(guid)) is None
        or _news(switch) != _news(old)
        or switch.at - old.at >= _REPORT_EVERY
        or (switch.at != old.at and _changed_at(switch) >= switch.at - _YOUNG)
    ]


def _news(switch: Switch) -> tuple[object, ...]:
    """What is told at once when it is another."""
    ports = [(replace(port, counts=()), last_errors(port.counts)) for port in switch.ports]
    return switch.subject, switch.lost_at, ports


def _changed_at(switch: Switch) -> datetime:
    every = [port.since for port in switch.ports]
    every += [at for port in switch.ports for at in changes(port.counts)]
    return max([*every, *([switch.lost_at] if switch.lost_at else [])], default=switch.at)


def remember(file: Path, switches: Iterable[Switch]) -> None:
    """Each as the record that it is told by; OSError where the file cannot be written."""
    fresh = file.with_suffix(".new")
    fresh.write_text("".join(f"{json.dumps(it.to_record().to_json())}\n" for it in switches))
    fresh.replace(file)


def remembered(file: Path) -> dict[str, Switch]:
    """What was remembered; nothing where the file is not there, or is no longer whole."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
        records = [Record.from_json(json.loads(line)) for line in lines]
    except (OSError, *UNREADABLE):
        return {}
    return {it.guid: it for it in readable(records, Switch.from_record)}
