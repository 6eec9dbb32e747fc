"""Repeat offenders, asked of the hub once for every page and command that shows them."""

from collections.abc import Iterable
from datetime import datetime

from accounting.hardware.repeat_offenders import SPAN, Offender, Part, failures, offenders
from gpuvigil.clock import moment
from gpuvigil.hub_client import Hub
from gpuvigil.model import Incident, RecordKind, readable
from gpuvigil.numbers_in_words import counted

# More failed within `SPAN` than anybody can look at; the newest count.
MOST_INCIDENTS = 20_000


def asked(hub: Hub, now: datetime) -> tuple[Offender, ...]:
    """All of them, the worst first. HubUnavailable or HubRefused when the hub does not answer."""
    records = hub.records(RecordKind.INCIDENT, since=now - SPAN, limit=MOST_INCIDENTS)
    return offenders(failures(readable(records, Incident.from_record)), now)


def of_place(
    found: Iterable[Offender], cluster: str, node: str, slot: str | None, serial: str | None
) -> tuple[Offender, ...]:
    """Those that a node's page shows, or with its slot and serial number a GPU's; the GPU first."""
    wanted = {(Part.NODE, node)}
    if slot:
        wanted = {(Part.SLOT, slot)}
    here = [
        one
        for one in found
        if (one.part is Part.GPU and serial and one.name == serial)
        or ((one.part, one.name) in wanted and (one.cluster, one.node) == (cluster, node))
    ]
    return tuple(sorted(here, key=lambda one: (one.part is not Part.GPU, one.part.value)))


def sentence(one: Offender) -> str:
    """How often, when last, and what that makes of it."""
    times = counted(len(one.failures), "failure")
    verdict = "; a lemon: take it out of service and inspect all of it" if one.is_lemon else ""
    return f"{times} in {SPAN.days} days, last {moment(one.last_at)}{verdict}"
