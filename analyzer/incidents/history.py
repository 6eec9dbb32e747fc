"""What happened before at the same place: written into an incident on the way to the hub.

Beside the analysis, as no detector asks for it. Which GPU it was and where it sat is written down with
an incident of one GPU: when that GPU is replaced, or sits elsewhere, nothing else would tell.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from accounting.hardware.repeat_offenders import (
    GONE,
    SPAN,
    Before,
    Failure,
    before,
    deaths,
    failures,
)
from gpuvigil.model import UNREADABLE, GpuIdentity, Incident, Record, RecordKind, Subject

# How the sentence is called among an incident's evidence.
HISTORY = "history"

_Words = tuple[str, str, Before]  # serial, slot and what was before


class Histories:
    """Failures of the last weeks, and what was said of each incident that stands; for any thread."""

    def __init__(self, gpu: Callable[[Subject], GpuIdentity | None]) -> None:
        """`gpu` says who a GPU is and where it sits now."""
        self._gpu = gpu
        self._lock = threading.Lock()
        # By node and by serial number, then by incident: a storm of incidents looks at few each.
        self._failures: dict[tuple[str, ...], dict[str, tuple[Failure, ...]]] = {}
        self._said: dict[str, _Words] = {}

    def begin(self, incidents: Iterable[Incident], now: datetime) -> None:
        """What the hub has; whatever was known before is forgotten."""
        known = [one for one in incidents if now - one.since <= SPAN]
        with self._lock:
            self._failures, self._said = {}, {}
            for one in known:
                self._remember(one)
            # Should one that is over come back, it is said anew.
            for one in (it for it in known if it.resolved_at is None):
                was = Before(_sentence(one), before(one, self._near(one)).advice)
                self._said[one.id] = one.serial, one.slot, was

    def named(self, record: Record) -> Record:
        """An incident, or a transition with its snapshot, that says which GPU it was, and its history.

        What failed too often for its usual repair has another one to begin with.
        """
        if record.kind is RecordKind.INCIDENT:
            return self._with(record)
        if record.kind is RecordKind.TRANSITION:
            try:
                snapshot = Record.from_json(record.body["snapshot"])
            except UNREADABLE:
                return record
            body = {**record.body, "snapshot": self._with(snapshot).to_json()}
            return replace(record, body=body)
        return record

    def _with(self, record: Record) -> Record:
        try:
            incident = Incident.from_record(record)
        except UNREADABLE:
            return record
        serial, slot, was = self._words(incident)
        evidence: list[Mapping[str, Any]] = [
            item for item in record.body["evidence"] if item["name"] != HISTORY
        ]
        if was.sentence:
            evidence.append({"name": HISTORY, "value": was.sentence})
        body = {**record.body, "evidence": evidence, "serial": serial, "slot": slot}
        if was.advice:
            body["action"] = was.advice
        return replace(record, body=body)

    def _words(self, incident: Incident) -> _Words:
        """Said once, when it opens: what comes later is no history of it."""
        with self._lock:
            known = self._said.get(incident.id)
        if known is None:
            serial, slot = self._place(incident.subject)
            incident = replace(incident, serial=serial, slot=slot)
            with self._lock:
                known = serial, slot, before(incident, self._near(incident))
        incident = replace(incident, serial=known[0], slot=known[1])
        with self._lock:
            self._said[incident.id] = known
            self._remember(incident)
            if incident.resolved_at is not None:
                # Should it come back as the same one, it is said anew.
                del self._said[incident.id]
        return known

    def _place(self, subject: Subject) -> tuple[str, str]:
        gpu = self._gpu(subject) if subject.kind == "gpu" else None
        return ("", "") if gpu is None else (gpu.serial or "", gpu.pci_address or "")

    def _near(self, incident: Incident) -> list[Failure]:
        """What failed on its node or on its GPU, without what is too old."""
        near: dict[str, tuple[Failure, ...]] = {}
        for key in _keys(incident):
            known = self._failures.get(key, {})
            for old in [it for it, them in known.items() if incident.since - them[-1].at > SPAN]:
                del known[old]
            near |= known
        died = incident.fault in GONE
        return [one for them in near.values() for one in them if (one.fault in GONE) is died]

    def _remember(self, incident: Incident) -> None:
        found = failures([incident]) or deaths([incident])
        for key in _keys(incident):
            known = self._failures.setdefault(key, {})
            known.pop(incident.id, None)
            if found:
                known[incident.id] = found


def _keys(incident: Incident) -> list[tuple[str, ...]]:
    keys: list[tuple[str, ...]] = [(incident.subject.of_node().key,)]
    return [*keys, ("serial", incident.serial)] if incident.serial else keys


def _sentence(incident: Incident) -> str:
    return next((item.value for item in incident.evidence if item.name == HISTORY), "")
