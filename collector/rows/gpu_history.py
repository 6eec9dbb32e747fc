"""The history of a node's GPUs, tick by tick: rows, and events where something changed."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from gpuvigil.log import Log
from gpuvigil.model import Event, EventKind, GpuIdentity, Subject, Unmeasured

from ..samples.messages import (
    CHANGED,
    LOADED,
    NO_DRIVER,
    RELEASED,
    STARTING,
    GpuTick,
    Tick,
    XidSeen,
)
from ..sensors.pci import same_form
from ..sensors.steps import Progress
from .catalogue_rows import Number, Row
from .events import EventMaker
from .gpu_changes import GpuNews, Silence
from .gpu_rows import GpuRowMaker
from .monotone_counters import MonotoneCounters

log = Log("collector")

_ABSENT = GpuTick(index=-1)


class GpuBook:
    """Keeps track of every GPU this node has ever had, even when the driver says nothing of it."""

    def __init__(
        self,
        events: EventMaker,
        known: dict[str, GpuIdentity],
        counters: MonotoneCounters,
        silence: Silence,
        lost: dict[str, datetime] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set up; `known`, `counters` and `lost` (UUID, since when) are kept up to date for saving."""
        self._events = events
        self._known = known
        self._maker, self._counters = GpuRowMaker(events.node, counters, monotonic), counters
        self._silence = silence
        self._lost: dict[str, datetime] = {} if lost is None else lost
        self._silent: set[str] = set()
        self._subjects: dict[str, Subject] = {}  # by UUID
        self._absent: dict[str, tuple[Unmeasured, datetime]] = {}  # why and since when
        self._on_bus: frozenset[str] | None = None
        self._steps: Mapping[str, Progress] = {}
        self._moved: Mapping[str, Mapping[str, int]] = {}
        self._seen_on_bus: set[str] = set()
        # Since when no call to the driver has returned; None while calls do.
        self.silent_since: datetime | None = None
        self._all_silent = self._were_all_silent = False  # in the last tick, in the one before

    def xid(self, seen: XidSeen) -> Event:
        """Return the event of an Xid: of its GPU, or of the node when no known GPU was named."""
        subject = self._events.node if seen.uuid is None else self._subject(seen.uuid)
        text = f"Xid {seen.xid}"
        return self._events.make(EventKind.XID, subject, seen.at, text, xid=seen.xid)

    def named(self, subject: Subject) -> dict[str, str | int | None]:
        """Return a subject for the log, in the names that people and other programs use."""
        gpu = self._known.get(subject.gpu or "")
        if gpu is None:
            return {"subject": subject.key}
        return {"subject": subject.key, "gpu": gpu.index, "pci_address": gpu.pci_address}

    def see_bus(self, addresses: Iterable[str] | None) -> None:
        """Take the GPUs that are on the PCI bus now; None when that is unknown."""
        self._on_bus = None if addresses is None else frozenset(addresses)
        self._seen_on_bus |= self._on_bus or frozenset()

    def see_jobs(
        self, steps: Mapping[str, Progress], moved: Mapping[str, Mapping[str, int]]
    ) -> None:
        """Take what programs on the GPUs report, and what their jobs read and wrote, by UUID."""
        self._steps, self._moved = steps, moved

    def restore(self, gpus: Iterable[GpuIdentity], missing: Mapping[str, datetime]) -> bool:
        """Take over the GPUs that the hub knows; return true when any was forgotten here.

        A GPU whose PCI address has another GPU now was replaced, and stays forgotten.
        """
        taken = {gpu.pci_address for gpu in self._known.values() if gpu.pci_address}
        found = {gpu.uuid: gpu for gpu in gpus if gpu.uuid not in self._known}
        found = {uuid: gpu for uuid, gpu in found.items() if gpu.pci_address not in taken}
        self._known |= found
        self._lost |= {uuid: since for uuid, since in missing.items() if uuid in found}
        return bool(found)

    def forget(self, uuid: str) -> bool:
        """Forget a GPU that was taken out for good; return false when this node does not know it."""
        for kept in (self._lost, self._absent):
            kept.pop(uuid, None)
        self._silent.discard(uuid)
        return self._known.pop(uuid, None) is not None

    def update(self, tick: Tick | None, now: datetime, outage_seconds: float | None) -> GpuNews:
        """Return the news of a tick; `tick` is None when the reader had nothing to report.

        `outage_seconds` is how long the reader itself has been silent, once that is too long.
        """
        changed, lost = self._learn(tick), set(self._lost)
        node_event = self._judge_driver(tick, now, outage_seconds)
        listed = () if tick is None else tick.gpus
        self._were_all_silent = self._all_silent
        self._all_silent = self.silent_since is not None or all(
            gpu.silent_seconds is not None for gpu in listed
        )
        at = now if tick is None else tick.at
        gpus: list[Row] = []
        sent: list[Row] = []
        shown: list[Row] = []
        events = [node_event] if node_event else []
        by_uuid = {} if tick is None else self._by_uuid(tick.gpus)
        for uuid, identity in self._known.items():
            found = self._state(uuid, by_uuid, tick)
            if found is None:
                continue
            events += self._note(uuid, found, now)
            events += self._make_monotone(uuid, found, now)
            rows = self._maker.rows(
                identity, found, at, self._driverless_fields(identity, found, at)
            )
            gpus.append(rows.gpu)
            sent += [*rows.links, *rows.migs]
            shown += [*self._maker.links_shown(uuid), *rows.migs]
        return GpuNews(
            rows=(*gpus, *sent),
            shown=(*gpus, *shown, *self._maker.calls(at)),
            events=tuple(events),
            answering=sum(1 for row in gpus if row.fields.get("up") == 1),
            driver_answering=self._driver_answering(tick),
            driver_silent_seconds=self._driver_silent_seconds(tick, now),
            changed=changed or lost != set(self._lost),
        )

    def _learn(self, tick: Tick | None) -> bool:
        """Take over identities; return true when one is new or has changed."""
        before = dict(self._known)
        listed = [g.identity for g in (() if tick is None else tick.gpus) if g.identity is not None]
        self._known |= {gpu.uuid: _in_its_domain(gpu, before.get(gpu.uuid)) for gpu in listed}
        here = {gpu.uuid for gpu in listed}
        slots = {gpu.pci_address for gpu in listed if gpu.uuid not in before and gpu.pci_address}
        for uuid, old in before.items():
            # Only a new GPU replaces another: those that stay may move to other addresses.
            if uuid not in here and old.pci_address in slots:
                log.warning("GPU was replaced", uuid=uuid, pci_address=old.pci_address)
                self.forget(uuid)
        return before != self._known

    def _judge_driver(
        self, tick: Tick | None, now: datetime, outage_seconds: float | None
    ) -> Event | None:
        """Judge whether the driver as a whole answers; return the event when that has changed."""
        silent = outage_seconds if tick is None else tick.silent_seconds
        node = self._events.node
        if silent is not None and self.silent_since is None:
            self.silent_since = now - timedelta(seconds=silent)
            text = "no driver call comes back"
            return self._events.make(EventKind.DRIVER_SILENT, node, now, text)
        answers = tick is not None and silent is None and tick.state not in {STARTING, CHANGED}
        if answers and self.silent_since is not None:
            self.silent_since = None
            text = _over(tick, "the driver answers again")
            return self._events.make(EventKind.DRIVER_BACK, node, now, text)
        return None

    def _by_uuid(self, gpus: Sequence[GpuTick]) -> dict[str, GpuTick]:
        """Return GPUs by UUID; one without a UUID yet is matched by the index it had before."""
        found = {gpu.identity.uuid: gpu for gpu in gpus if gpu.identity is not None}
        nameless = {gpu.index: gpu for gpu in gpus if gpu.identity is None}
        for uuid, identity in self._known.items():
            if uuid not in found and identity.index in nameless:
                found[uuid] = nameless.pop(identity.index)
        return found

    def _state(
        self, uuid: str, by_uuid: Mapping[str, GpuTick], tick: Tick | None
    ) -> GpuTick | None:
        """Return a known GPU's state in this tick; None when nothing is known of it."""
        gpu = by_uuid.get(uuid)
        if self.silent_since is not None:
            gpu = replace(gpu or _ABSENT, values=None, reason=Unmeasured.DRIVER_NOT_ANSWERING)
        elif gpu is None:
            # The GPU was here once; a loaded driver would list it.
            gpu = _ABSENT if tick is None else self._unlisted(uuid, tick)
        elif (gpu.silent_seconds or 0.0) >= self._silence.unknown_seconds:
            gpu = replace(gpu, reason=Unmeasured.DRIVER_NOT_ANSWERING)
        # During a release a GPU may be taken off the bus and put back on purpose, to be reset.
        unsure = gpu.reason not in {None, Unmeasured.RELEASED_FOR_MAINTENANCE}
        if gpu.values is None and unsure and self._has_left_bus(uuid):
            gpu = replace(gpu, reason=Unmeasured.LOST)
        return None if gpu.values is None and gpu.reason is None else gpu

    def _unlisted(self, uuid: str, tick: Tick) -> GpuTick:
        """Return the state of a known GPU that is not listed; a lost one stays so during a release."""
        starting = tick.starting_seconds or 0.0
        if starting >= self._silence.unknown_seconds:
            reason = Unmeasured.DRIVER_NOT_ANSWERING
            return replace(_ABSENT, reason=reason, silent_seconds=starting)
        if tick.state == RELEASED and uuid in self._lost:
            return replace(_ABSENT, reason=Unmeasured.LOST)
        return replace(_ABSENT, reason=_why_absent(tick.state))

    def _has_left_bus(self, uuid: str) -> bool:
        """Return whether the PCI bus had this GPU and no longer has it, whatever the driver says."""
        present = self._is_on_bus(self._known[uuid])
        return present is not None and not present

    def _is_on_bus(self, identity: GpuIdentity) -> bool | None:
        """Return whether the GPU is on the bus.

        None when the bus cannot be read, or never had this address: not every bus is seen.
        """
        address = same_form(identity.pci_address or "")
        if self._on_bus is None or address not in self._seen_on_bus:
            return None
        return address in self._on_bus

    def _since(self, uuid: str, gpu: GpuTick, at: datetime) -> float | None:
        """Return for how many seconds the GPU's values have been absent for this reason.

        None when there is no reason.
        """
        if gpu.reason is None:
            self._absent.pop(uuid, None)
            return None
        reason, since = self._absent.get(uuid, (None, at))
        if gpu.reason is Unmeasured.LOST:
            since = self._lost.get(uuid, at)
        elif gpu.reason is not reason and gpu.reason is Unmeasured.DRIVER_NOT_ANSWERING:
            silent = at - timedelta(seconds=gpu.silent_seconds or 0.0)
            since = self.silent_since or silent
        elif gpu.reason is not reason:
            since = at
        self._absent[uuid] = (gpu.reason, since)
        return max((at - since).total_seconds(), 0.0)

    def _note(self, uuid: str, gpu: GpuTick, now: datetime) -> list[Event]:
        """Return events for a GPU that was lost, came back, fell silent or answers again."""
        subject, make = self._subject(uuid), self._events.make
        events = []
        if gpu.reason is Unmeasured.LOST and uuid not in self._lost:
            self._lost[uuid] = now
            events.append(make(EventKind.GPU_LOST, subject, now, "GPU is lost"))
        elif gpu.values is not None and uuid in self._lost:
            del self._lost[uuid]
            events.append(make(EventKind.GPU_BACK, subject, now, "GPU is back"))
        # When everything is silent, the node's own event says so. A driver that answers again does
        # so for one GPU after the other: each gets a tick's time for it.
        alone = gpu.reason is Unmeasured.DRIVER_NOT_ANSWERING and not (
            self._all_silent or self._were_all_silent
        )
        told = (gpu.silent_seconds or 0.0) >= self._silence.event_seconds
        if alone and told and uuid not in self._silent:
            self._silent.add(uuid)
            text = "driver calls on this GPU do not come back"
            events.append(make(EventKind.DRIVER_SILENT, subject, now, text))
        elif gpu.reason is not Unmeasured.DRIVER_NOT_ANSWERING and uuid in self._silent:
            self._silent.discard(uuid)
            released = gpu.reason is Unmeasured.RELEASED_FOR_MAINTENANCE
            text = RELEASED if released else "driver calls on this GPU come back again"
            events.append(make(EventKind.DRIVER_BACK, subject, now, text))
        return events

    def _make_monotone(self, uuid: str, gpu: GpuTick, now: datetime) -> list[Event]:
        """Make the counters among the GPU's values monotone; return an event when it was reset."""
        if not self._maker.make_monotone(uuid, gpu):
            return []
        text = "GPU was reset, or its driver loaded again"
        return [self._events.make(EventKind.GPU_RESET, self._subject(uuid), now, text)]

    def _driverless_fields(
        self, identity: GpuIdentity, gpu: GpuTick, at: datetime
    ) -> dict[str, Number | None]:
        """Return the fields that are known of a GPU without its driver."""
        present, absent_seconds = self._is_on_bus(identity), self._since(identity.uuid, gpu, at)
        found: dict[str, Number | None] = {
            "pcie_present": None if present is None else int(present),
            "unmeasured_seconds": absent_seconds if gpu.values is None else None,
        }
        if (told := self._steps.get(identity.uuid)) is not None:
            found |= told.fields()
        for name, since_start in self._moved.get(identity.uuid, {}).items():
            found[name], _ = self._counters.update(f"{identity.uuid} {name}", since_start)
        return found

    def _driver_answering(self, tick: Tick | None) -> bool | None:
        if self.silent_since is not None:
            return False
        return True if tick is not None and tick.state == LOADED else None

    def _driver_silent_seconds(self, tick: Tick | None, now: datetime) -> float | None:
        if self.silent_since is not None:
            return max((now - self.silent_since).total_seconds(), 0.0)
        return 0.0 if self._driver_answering(tick) else None

    def _subject(self, uuid: str) -> Subject:
        if uuid not in self._subjects:
            self._subjects[uuid] = replace(self._events.node, gpu=uuid)
        return self._subjects[uuid]


def _in_its_domain(gpu: GpuIdentity, before: GpuIdentity | None) -> GpuIdentity:
    """Return the GPU in its previous NVLink domain, while it has joined no fabric to report one."""
    if before is None or before.nvlink_domain is None or gpu.nvlink_domain is not None:
        return gpu
    return replace(gpu, fabric_cluster=before.fabric_cluster, fabric_clique=before.fabric_clique)


def _why_absent(state: str) -> Unmeasured | None:
    """Return why a driver in this state does not list a known GPU; None: not known yet."""
    reasons = {
        LOADED: Unmeasured.LOST,
        NO_DRIVER: Unmeasured.DRIVER_NOT_LOADED,
        STARTING: None,
        CHANGED: None,
        RELEASED: Unmeasured.RELEASED_FOR_MAINTENANCE,
    }
    return reasons.get(state, Unmeasured.READ_ERROR)


def _over(tick: Tick | None, text: str) -> str:
    """Return how a silence ended: nobody asks a driver that is released."""
    return RELEASED if tick is not None and tick.state == RELEASED else text
