"""The history of an incident's part and node, added to the incident on its way to the hub.

This is apart from the analysis, as no detector needs it. An incident of one GPU also records the
GPU's serial number and slot: once that GPU is replaced or moved, nothing else would tell.
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

# The name of the history sentence among an incident's evidence.
HISTORY = "history"

_Words = tuple[str, str, Before]  # serial, slot and history


class Histories:
    """Failures of the last weeks, and the history given to each open incident; thread-safe."""

    def __init__(self, gpu: Callable[[Subject], GpuIdentity | None]) -> None:
        """Start empty; `gpu` returns a GPU's current identity and slot, None if unknown."""
        self._gpu = gpu
        self._lock = threading.Lock()
        # By node and by serial number, then by incident id: in a storm each incident reads few.
        self._failures: dict[tuple[str, ...], dict[str, tuple[Failure, ...]]] = {}
        self._attached: dict[str, _Words] = {}

    def begin(self, incidents: Iterable[Incident], now: datetime) -> None:
        """Replace everything known by the incidents of the last weeks that the hub has."""
        known = [one for one in incidents if now - one.since <= SPAN]
        with self._lock:
            self._failures, self._attached = {}, {}
            for one in known:
                self._remember(one)
            # The history of one that is over is written anew if it comes back.
            for one in (it for it in known if it.resolved_at is None):
                was = Before(_sentence(one), before(one, self._near(one)).advice)
                self._attached[one.id] = one.serial, one.slot, was

    def named(self, record: Record) -> Record:
        """Return an incident, or a transition's snapshot, with its GPU's serial, slot and history.

        If the part failed too often for the usual repair, the first action is another one.
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
        """Return serial, slot and history as of its opening: what comes later is no history."""
        with self._lock:
            known = self._attached.get(incident.id)
        if known is None:
            serial, slot = self._place(incident.subject)
            incident = replace(incident, serial=serial, slot=slot)
            with self._lock:
                known = serial, slot, before(incident, self._near(incident))
        incident = replace(incident, serial=known[0], slot=known[1])
        with self._lock:
            self._attached[incident.id] = known
            self._remember(incident)
            if incident.resolved_at is not None:
                # The history is written anew if it comes back as the same incident.
                del self._attached[incident.id]
        return known

    def _place(self, subject: Subject) -> tuple[str, str]:
        gpu = self._gpu(subject) if subject.kind == "gpu" else None
        return ("", "") if gpu is None else (gpu.serial or "", gpu.pci_address or "")

    def _near(self, incident: Incident) -> list[Failure]:
        """Return what failed on its node or GPU, and forget failures older than `SPAN`.

        An incident of a node that is gone gets only such failures, any other one only the others.
        """
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
