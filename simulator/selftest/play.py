"""What the selftest's nodes report, moment by moment; nothing here is sent."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpuvigil import __version__
from gpuvigil.clock import to_ns
from gpuvigil.config import AnalyzerSettings
from gpuvigil.faults import FAULTS, Fault
from gpuvigil.faults.selftest_script import (
    ChangedValue,
    Fields,
    GrowingCounter,
    ScriptedEvent,
    SelftestScript,
)
from gpuvigil.lineprotocol import encode
from gpuvigil.metrics import MEASUREMENTS
from gpuvigil.model import (
    SELFTEST_CLUSTER,
    Allocation,
    BusGpu,
    Event,
    EventKind,
    GpuIdentity,
    Inventory,
    PortIdentity,
    Subject,
)
from gpuvigil.model.selftest_nodes import node_name

_MODEL = "gpuvigil selftest"
# Lines sent for each span that a rule looks at; a collector sends about as many.
_LINES_OF_A_SPAN = 30
_LONGEST_TICK_SECONDS = 10.0

# The events that end a fault: a reset, a boot or a cable.
_CURES = {"gpu": EventKind.GPU_RESET, "port": EventKind.PORT_UP, "node": EventKind.BOOT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node of a run, and its fault."""

    subject: Subject
    fault: Fault
    number: int = 0  # index among the nodes with this fault

    @property
    def ports(self) -> tuple[PortIdentity, ...]:
        """The ports in its inventory; numbers are sent for the first."""
        script = self.fault.selftest
        if script.ports:
            return script.ports[self.number]
        return () if script.port is None else (script.port,)

    @property
    def gpus(self) -> tuple[Subject, ...]:
        """All installed GPUs."""
        node = self.subject
        names = (f"GPU-{node.node}-{index}" for index in range(self.fault.selftest.gpus_installed))
        return tuple(replace(node, gpu=name) for name in names)

    @property
    def port(self) -> Subject | None:
        port = self.fault.selftest.port
        return None if port is None else replace(self.subject, device=port.device, port=port.port)

    def place(self, on: str) -> Subject:
        """Return the subject of a fault's event."""
        if on == "gpu":
            return self.gpus[0]
        if on == "port" and self.port is not None:
            return self.port
        return self.subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """One run: its nodes, and what they report; `began` is its beginning."""

    run: str
    began: datetime
    settings: AnalyzerSettings
    faults: Sequence[Fault] = tuple(FAULTS.values())

    @property
    def tick_seconds(self) -> float:
        """How often the nodes send: several times within the shortest span that rules look at."""
        return min(_LONGEST_TICK_SECONDS, self.settings.window_seconds / 6.0)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes of the run."""
        return tuple(
            Node(
                subject=Subject(cluster=SELFTEST_CLUSTER, node=node_name(self.run, name)),
                fault=fault,
                number=number,
            )
            for fault in self.faults
            for number, name in enumerate(names(fault))
        )

    def history(self, node: Node) -> list[str]:
        """Return the lines of the time before the run, as if the fault had lasted for long."""
        limits = self.settings
        spans = [limits.window_seconds, limits.steady_seconds, limits.idle_after_seconds]
        if node.fault.selftest.ticks_slowly:
            spans.append(limits.underused_after_seconds)
        # One more than the span needs, so that it is covered to its very beginning.
        ages = {span * n / _LINES_OF_A_SPAN for span in spans for n in range(_LINES_OF_A_SPAN + 2)}
        times = [self.began - timedelta(seconds=age) for age in sorted(ages, reverse=True)]
        return [line for at in times for line in self.lines(node, at)]

    def lines(self, node: Node, at: datetime) -> list[str]:
        """Return the lines of one tick of the node."""
        script, tags = (
            node.fault.selftest,
            {"cluster": node.subject.cluster, "node": node.subject.node},
        )
        found = [self._line("node", tags, script.node_fields, at)]
        for index, fields in enumerate(script.gpus):
            of_gpu = {**tags, "uuid": str(node.gpus[index].gpu), "model": _MODEL}
            found.append(self._line("gpu", of_gpu, {"index": index, **fields}, at))
        if script.port is not None and script.port_fields:
            port = script.port
            named = {"device": port.device, "port": port.port, "kind": port.kind}
            of_port = {**tags, **named, "role": port.role}
            found.append(self._line("port", of_port, script.port_fields, at))
        return [line for line in found if line is not None]

    def inventory(self, node: Node) -> Inventory:
        """Return the inventory of the node."""
        script, name = node.fault.selftest, node.subject.node
        at = self.began - timedelta(seconds=script.inventory_seconds_ago)
        tick, lacks = self.tick_seconds, script.driverless_seconds_ago
        addresses = [f"0000:{index + 1:02x}:00.0" for index in range(len(node.gpus))]
        if script.ticks_slowly:
            tick = max(tick, self.settings.idle_after_seconds / _LINES_OF_A_SPAN)
        return Inventory(
            subject=node.subject,
            at=at,
            boot=self.run,
            tick_seconds=tick,
            version=__version__,
            gpus=tuple(
                GpuIdentity(
                    uuid=str(gpu.gpu),
                    index=index,
                    pci_address=f"0000{addresses[index].upper()}",
                    model=_MODEL,
                    serial=f"selftest-{name}-{index}",
                    vbios="00.00",
                    fabric_cluster=script.fabric_cluster,
                    fabric_clique=None if script.fabric_cluster is None else 1,
                )
                for index, gpu in enumerate(node.gpus)
            ),
            ports=node.ports,
            driver=script.driver if lacks is None else None,
            driver_state="loaded" if lacks is None else "no driver",
            rack=script.rack,
            on_bus=tuple(BusGpu(address=one, vendor="NVIDIA") for one in addresses),
            driverless_since=None if lacks is None else self.began - timedelta(seconds=lacks),
        )

    def allocations(self) -> Iterator[Allocation]:
        """Yield the allocations of these nodes' GPUs."""
        for node in self.nodes:
            held = node.fault.selftest.holder
            if held is None:
                continue
            ended = held.ended_ago
            for gpu in node.gpus[: held.gpus]:
                yield Allocation(
                    subject=gpu,
                    holder=held.holder,
                    user="selftest",
                    command="gpuvigil selftest",
                    started_at=self.began - timedelta(seconds=held.started_ago),
                    ended_at=None if ended is None else self.began - timedelta(seconds=ended),
                )

    def events(self, now: datetime) -> Iterator[Event]:
        """Yield what the collectors report at once, at `now`."""
        for node in self.nodes:
            for number, told in enumerate(events_of(node.fault.selftest, self.settings)):
                at = now - timedelta(seconds=told.seconds_ago)
                yield self._event(node.place(told.on), told, at, str(number))

    def cures(self, now: datetime) -> Iterator[Event]:
        """Yield the events that end the faults which stand until something fixes them."""
        for node in self.nodes:
            for on in sorted({told.on for told in events_of(node.fault.selftest, self.settings)}):
                yield self._event(node.place(on), ScriptedEvent(kind=_CURES[on]), now, f"cure {on}")

    def _event(self, subject: Subject, told: ScriptedEvent, at: datetime, name: str) -> Event:
        return Event(
            kind=told.kind,
            subject=subject,
            at=at,
            id=f"{subject.of_node().key}|{self.run}|{told.kind.value}|{subject.key}|{name}",
            xid=told.xid,
            sxid=told.sxid,
            message=told.message,
        )

    def _line(
        self, measurement: str, tags: Mapping[str, str], fields: Fields, at: datetime
    ) -> str | None:
        catalogue = MEASUREMENTS[measurement]
        values: dict[str, float | int] = {}
        for name, value in fields.items():
            number = self._number(value, at)
            values[name] = int(number) if catalogue.metric(name).integer else float(number)
        return encode(measurement, tags, values, to_ns(at))

    def _number(self, value: float | GrowingCounter | ChangedValue, at: datetime) -> float:
        seconds = (at - self.began).total_seconds()
        if isinstance(value, GrowingCounter):
            # Counters started long before the first line.
            return value.per_second * (seconds + 1e7)
        if isinstance(value, ChangedValue):
            turned = seconds >= -getattr(self.settings, value.span)
            return value.after if turned else value.before
        return value


def names(fault: Fault) -> tuple[str, ...]:
    """Return the names of the nodes with the fault, without the run."""
    name, nodes = fault.key.replace("_", "-"), fault.selftest.nodes
    return (name,) if nodes == 1 else tuple(f"{name}-{n + 1}" for n in range(nodes))


def events_of(script: SelftestScript, settings: AnalyzerSettings) -> Sequence[ScriptedEvent]:
    """Return the fault's events, with the ages that the settings require."""
    found = [
        replace(one, seconds_ago=one.seconds_ago + getattr(settings, one.older_by))
        if one.older_by
        else one
        for one in script.events
    ]
    for number in range(settings.port_flap_count if script.flaps else 0):
        ago = 10.0 * (settings.port_flap_count - number)
        found.append(ScriptedEvent(kind=EventKind.PORT_DOWN, on="port", seconds_ago=ago))
        found.append(ScriptedEvent(kind=EventKind.PORT_UP, on="port", seconds_ago=ago - 4.0))
    return found


def rules(faults: Iterable[Fault] = tuple(FAULTS.values())) -> tuple[str, ...]:
    """Return the detectors that the selftest checks, in the order of its table."""
    return tuple(dict.fromkeys(fault.detector for fault in faults))
