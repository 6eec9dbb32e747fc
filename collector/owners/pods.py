"""Holders of GPUs that are the kubelet's pods."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from gpuvigil.log import Log
from gpuvigil.model import Allocation, Holder, Subject, pod_holder

from .jobs import Gpus
from .kubelet import device_map
from .kubelet.device_map import Answer, DeviceHold
from .processes import continuing_allocation

log = Log("collector")

SHARED = "shared"  # time slicing or MPS: others may have the same GPU, and none of its values is one pod's own
# A MIG device is known with the first slow look at its GPU.
_PATIENCE = timedelta(minutes=3)
# A kubelet that was just restarted answers before it knows its pods.
_ABSENT = timedelta(minutes=1)


@dataclass(slots=True)
class _Part:
    """What one pod holds of one GPU."""

    namespace: str
    containers: set[str] = field(default_factory=set)
    parts: set[str] = field(default_factory=set)


class Pods:
    """Keeps the allocations of a node's GPUs that its kubelet reports."""

    def __init__(
        self, node: Subject, held: Iterable[Allocation] = (), booted_at: datetime | None = None
    ) -> None:
        """Set up; `held` are the allocations that were open when the collector last ran.

        `booted_at` is when the node was booted: no pod's containers outlive that.
        """
        self._node = node
        self._held = {allocation.id: allocation for allocation in held}
        self._booted_at = booted_at
        self._migs: dict[str, str] = {}  # all that were ever reported: not every look reports them
        self._unplaced: dict[str, datetime] = {}  # devices that match no known GPU, since when
        self._logged: set[str] = set()
        # Held, but not in the kubelet's answer, since when.
        self._absent: dict[tuple[str | None, Holder], datetime] = {}
        self._answered = False  # at the last look

    @property
    def held(self) -> list[Allocation]:
        """Allocations that are open now."""
        return list(self._held.values())

    def restore(self, held: Iterable[Allocation]) -> tuple[Allocation, ...]:
        """Take over the hub's open allocations, and return those that this ends.

        A pod that still has its GPU goes on as the older allocation.
        """
        known: dict[tuple[str | None, Holder], dict[str, Allocation]] = {}
        for one in (*held, *self._held.values()):
            known.setdefault((one.subject.gpu, one.holder), {})[one.id] = one
        ended: list[Allocation] = []
        self._held = {}
        for them in known.values():
            first, over = continuing_allocation(them.values())
            self._held[first.id] = first
            ended += over
        return tuple(ended)

    def update(self, answer: Answer | None, gpus: Gpus, now: datetime) -> tuple[Allocation, ...]:
        """Return allocations that began or ended since the last look; none while nothing is known."""
        self._migs |= gpus.migs
        answered, self._answered = self._answered, answer is not None
        if answer is None:
            return ()
        found, unplaced = self._place(answer.holds, gpus)
        self._log_unknown(answer, unplaced, gpus, now)
        waiting = {pod_holder(hold.name) for hold in unplaced.values()}
        by = {(one.subject.gpu, one.holder): one for one in self._held.values()}
        self._absent = {
            key: self._absent.get(key, now)
            for key, one in by.items()
            if key not in found and one.holder not in waiting
        }
        # A whole GPU is given to another pod only after it was given back.
        whole = {uuid for (uuid, _), part in found.items() if not part.parts}
        ended = [
            self._end(by[key], since)
            for key, since in self._absent.items()
            if now - since >= _ABSENT or key[0] in whole
        ]
        began = [
            self._begin(*key, part, now, before=not answered)
            for key, part in found.items()
            if key not in by
        ]
        return (*ended, *began)

    def _place(
        self, holds: Iterable[DeviceHold], gpus: Gpus
    ) -> tuple[dict[tuple[str, Holder], _Part], dict[str, DeviceHold]]:
        """Return what is held, by GPU and holder, and the devices that match no known GPU."""
        minors = {gpu.minor: gpu.uuid for gpu in gpus.known.values() if gpu.minor is not None}
        # A MIG device belongs to the same GPU for as long as it is held.
        migs = {
            part: one.subject.gpu or ""
            for one in self._held.values()
            for part in (one.part or "").split(",")
        } | self._migs
        found: dict[tuple[str, Holder], _Part] = {}
        unplaced: dict[str, DeviceHold] = {}
        for hold in holds:
            for name in hold.devices:
                device = device_map.device(name)
                uuid = None if device is None else device_map.gpu_of(device, minors, migs)
                if device is None or uuid is None:
                    unplaced[name] = hold
                    continue
                part = found.setdefault((uuid, pod_holder(hold.name)), _Part(hold.namespace))
                part.containers.add(hold.container)
                part.parts |= {it for it in (device.mig, device.instance) if it}
                part.parts |= {SHARED} if device.shared else set()
        return found, unplaced

    def _begin(
        self, uuid: str, holder: Holder, part: _Part, now: datetime, *, before: bool
    ) -> Allocation:
        one = Allocation(
            subject=replace(self._node, gpu=uuid),
            holder=holder,
            user=None,
            command=None,
            started_at=now,
            account=part.namespace,
            pod=holder.name,
            place=",".join(sorted(part.containers)),
            part=",".join(sorted(part.parts)) or None,
            began_before=before,
        )
        self._held[one.id] = one
        return one

    def _end(self, one: Allocation, now: datetime) -> Allocation:
        del self._held[one.id]
        booted = self._booted_at
        gone = booted if booted is not None and one.started_at < booted < now else now
        return replace(one, ended_at=gone)

    def _log_unknown(
        self, answer: Answer, unplaced: dict[str, DeviceHold], gpus: Gpus, now: datetime
    ) -> None:
        """Log once what cannot be followed, once it stays so longer than identification takes."""
        self._unplaced = {name: self._unplaced.get(name, now) for name in unplaced}
        for name, since in self._unplaced.items():
            if now - since >= _PATIENCE and self._is_news(f"unplaced {name}"):
                hold = unplaced[name]
                log.warning(
                    "a pod holds a device that is not known here", pod=hold.name, device=name
                )
        for pod in answer.claimed:
            if self._is_news(f"claimed {pod}"):
                log.warning("a pod has a GPU by a claim (DRA) that is not known here", pod=pod)
        if answer.allocatable:
            self._log_withheld(answer.allocatable, gpus)

    def _log_withheld(self, allocatable: Iterable[str], gpus: Gpus) -> None:
        """Log GPUs of this node that the kubelet does not offer: its plugin deems them unhealthy."""
        minors = {gpu.minor: gpu.uuid for gpu in gpus.known.values() if gpu.minor is not None}
        devices = [found for name in allocatable if (found := device_map.device(name))]
        offered = {device_map.gpu_of(found, minors, self._migs) for found in devices}
        if None in offered:
            return  # a MIG device's GPU is not known yet
        for uuid in sorted(gpus.known.keys() - offered - set(gpus.missing)):
            if self._is_news(f"withheld {uuid}"):
                log.warning("the kubelet does not offer a GPU of this node", gpu=uuid)

    def _is_news(self, what: str) -> bool:
        if what in self._logged:
            return False
        self._logged.add(what)
        return True
