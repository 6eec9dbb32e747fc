"""Repeat offenders among nodes, slots and GPUs, for every page and command that shows them."""

from collections.abc import Iterable
from datetime import datetime

from accounting.hardware.repeat_offenders import SPAN, Offender, Part, failures, offenders
from gpuvigil.clock import moment
from gpuvigil.hub_client import Hub
from gpuvigil.model import Incident, RecordKind, readable
from gpuvigil.numbers_in_words import counted

# The most incidents of `SPAN` that are read, newest first: more failures than anybody can look at.
MOST_INCIDENTS = 20_000


def asked(hub: Hub, now: datetime) -> tuple[Offender, ...]:
    """Return all offenders, worst first. HubUnavailable or HubRefused if the hub does not answer."""
    records = hub.records(RecordKind.INCIDENT, since=now - SPAN, limit=MOST_INCIDENTS)
    return offenders(failures(readable(records, Incident.from_record)), now)


def of_place(
    found: Iterable[Offender], cluster: str, node: str, slot: str | None, serial: str | None
) -> tuple[Offender, ...]:
    """Return the offenders for a node's page, or with slot and serial number for a GPU's page; the GPU first."""
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
    """Say how often it failed, when last, and whether it is a lemon."""
    times = counted(len(one.failures), "failure")
    verdict = "; a lemon: take it out of service and inspect all of it" if one.is_lemon else ""
    return f"{times} in {SPAN.days} days, last {moment(one.last_at)}{verdict}"
