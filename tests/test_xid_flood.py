"""A flood of Xids, from lines of the kernel log to the book of incidents: all is told, the gravest first."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alerts.decisions.attempts import attempt_ended, attempt_started
from alerts.decisions.decide import decide
from alerts.messages.channel import Delivered
from alerts.routing.case import ChannelProfile
from alerts.routing.notice import Notice, Verdict
from analyzer.analysis import Analysis
from analyzer.incidents.book import Book
from collector.kernel_log.burst_limit import BURST_SECONDS
from collector.kernel_log.event_book import KernelBook
from collector.sensors.kernel_log import Batch, LogEvent, Position
from collector.sensors.kernel_log_parser import parse
from gpuvigil.clock import ManualClock
from gpuvigil.config import AlertsSettings, AnalyzerSettings
from gpuvigil.faults import xid
from gpuvigil.faults.xid_messages import signature
from gpuvigil.model import (
    Event,
    EventKind,
    GpuIdentity,
    Incident,
    Record,
    RecordKind,
    Severity,
    Subject,
    Transition,
)

NOW = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
NODE = Subject(cluster="c", node="n1")
ADDRESSES = {f"GPU-{number}": f"0000:{number:02x}:00" for number in range(1, 4)}
GPUS = {
    uuid: GpuIdentity(uuid=uuid, index=index, pci_address=f"0000{address}.0", model="B200")
    for index, (uuid, address) in enumerate(ADDRESSES.items())
}
DECODED = range(144, 151)
# 45 follows every kill, 48 waits for what comes with it, 154 speaks through its words.
CODES = sorted({*range(13, 171)} - {45, 48, 154})


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What is reported, and how grave that is."""

    gpu: str
    code: int
    source: str = "kernel"
    unit: str = ""
    fatal: bool = False
    link: int = 0

    @property
    def severity(self) -> Severity:
        if self.code in DECODED and self.source == "kernel":
            return Severity.CRITICAL if self.fatal else Severity.WARNING
        return xid(self.code).severity

    @property
    def name(self) -> tuple[str, int, str]:
        """What must be told of it."""
        if self.code not in DECODED or self.source != "kernel":
            return self.gpu, self.code, ""
        word = "fatal" if self.fatal else "nonfatal"
        return self.gpu, self.code, f"{self.unit} {word} link {self.link}"

    @property
    def text(self) -> str:
        said = "words"
        if self.code in DECODED:
            word = "Fatal" if self.fatal else "Nonfatal"
            said = f"{self.unit} {word} XC1 i0 Link {self.link:02d} (0x0 0x0 0x0 0x0 0x0 0x0)"
        return f"NVRM: Xid (PCI:{ADDRESSES[self.gpu]}): {self.code}, pid=7, name=train, {said}"


class Node:
    """A collector's book of the kernel log, and the analyzer behind it."""

    def __init__(self, directory: Path, most_bursts: int = 1000) -> None:
        self.clock = ManualClock(NOW)
        self.book = KernelBook(directory / "log.json", NODE, GPUS, self.clock, most_bursts)
        self.analysis = Analysis(AnalyzerSettings())
        self.analysis.start([], Book())
        self.told: list[Event] = []
        self.transitions: list[Transition] = []
        self._number = 0

    def reports(self, lines: Sequence[Line]) -> list[Event]:
        """Lines that come at one moment, and what is told of them at once."""
        told: list[Event] = []
        seen = []
        for line in lines:
            self._number += 1
            if line.source == "kernel":
                event = parse(line.text)
                assert event is not None
                seen.append(LogEvent(id=str(self._number), at=self.clock.now(), event=event))
                continue
            told += self.book.xid(
                Event(
                    kind=EventKind.XID,
                    subject=replace(NODE, gpu=line.gpu),
                    at=self.clock.now(),
                    id=f"nvml {self._number}",
                    xid=line.code,
                    message=f"Xid {line.code}",
                )
            )
        position = Position(boot_id="b", sequence=self._number)
        told += self.book.ingest(Batch(events=tuple(seen), position=position))
        self.hears(told)
        return told

    def hears(self, events: Sequence[Event]) -> None:
        """What the hub hands to the analyzer."""
        self.told += events
        for event in events:
            self.analysis.ingest(event.to_record())
        self.analysis.check_node(NODE, self.clock.now())
        written = [record for unit in self.analysis.to_write() for record in unit]
        steps = [one for one in written if one.kind is RecordKind.TRANSITION]
        self.transitions += map(Transition.from_record, steps)

    def incidents(self, gpu: str) -> list[Incident]:
        active = self.analysis.book.active()
        return [one for one in active if one.subject == replace(NODE, gpu=gpu)]

    def names(self, events: Sequence[Event]) -> set[tuple[str, int, str]]:
        found = set()
        for event in events:
            code = event.xid or 0
            found.add((event.subject.gpu or "", code, signature(code, event.message).place))
        return found


LINES = st.builds(
    Line,
    gpu=st.sampled_from(sorted(ADDRESSES)),
    code=st.one_of(st.sampled_from(CODES), st.sampled_from(DECODED)),
    source=st.sampled_from(["kernel", "kernel", "kernel", "driver"]),
    unit=st.sampled_from(["RLW_CTRL", "RLW_REMAP", "RLW_RSPCOL", "NETIR_LINK_EVT"]),
    fatal=st.booleans(),
    link=st.integers(0, 17),
)


@st.composite
def floods(draw: st.DrawFn) -> list[tuple[float, list[Line]]]:
    """Up to ten moments of up to a hundred lines each, which repeat some sorts over and over."""
    sorts = draw(st.lists(LINES, min_size=1, max_size=60))
    random = draw(st.randoms(use_true_random=False))
    gaps = draw(st.lists(st.floats(0.0, 2 * BURST_SECONDS), max_size=10))
    return [(gap, random.choices(sorts, k=random.randint(1, 100))) for gap in gaps]


@pytest.mark.medium
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(floods())
def test_whatever_comes_in_whatever_order_is_told_and_the_gravest_leads(
    tmp_path_factory: pytest.TempPathFactory, flood: list[tuple[float, list[Line]]]
) -> None:
    node = Node(tmp_path_factory.mktemp("node"))
    lines: list[Line] = []
    for gap, batch in flood:
        node.clock.advance(gap)
        node.hears(node.book.due())
        lines += batch
        node.reports(batch)
        # Told at once, not when the burst is over.
        kernels = {line.name for line in batch if line.source == "kernel"}
        assert kernels <= node.names(node.told)
        for gpu in {line.gpu for line in lines}:
            gravest = min((o.severity for o in lines if o.gpu == gpu), key=lambda s: s.rank)
            if gravest is not Severity.INFO:
                _leads(node, gpu, gravest, lines)
    node.hears(node.book.flush())
    newest = {event.id: event for event in node.told}
    kernel = sum(line.source == "kernel" for line in lines)
    assert kernel <= sum(event.count for event in newest.values()) <= len(lines)


def _leads(node: Node, gpu: str, gravest: Severity, lines: Sequence[Line]) -> None:
    """The GPU's gravest report is what its incidents say first, and what people are told."""
    incidents = node.incidents(gpu)
    assert min((one.severity for one in incidents), key=lambda s: s.rank) is gravest
    leading = min(incidents, key=lambda one: one.severity.rank)
    codes = {o.code for o in lines if o.gpu == gpu and o.severity is gravest}
    if leading.fault == "gpu_xid":
        found = re.match(r"Xid (\d+)", leading.title)
        assert found is not None
        assert int(found[1]) in codes
        assert leading.evidence[0].name == f"Xid {found[1]}"
    steps = [step for step in node.transitions if step.incident == leading.id]
    said = Incident.from_record(Record.from_json(steps[-1].snapshot))
    assert said.severity is gravest


BURST = [
    Line(gpu="GPU-1", code=145, unit="RLW_CTRL", fatal=fatal, link=8)
    for fatal in (False, True, False)
]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_fatal_one_among_nonfatal_ones_is_told_as_worse(tmp_path: Path, at_once: bool) -> None:
    node = Node(tmp_path)
    for lines in [BURST] if at_once else [[line] for line in BURST]:
        node.reports(lines)
        node.clock.advance(0.3)
    (incident,) = node.incidents("GPU-1")
    assert incident.severity is Severity.CRITICAL
    said = incident.evidence
    assert "RLW_CTRL Fatal" in next(item.value for item in said if item.name == "message")
    assert "145 RLW_CTRL nonfatal link 8 x1" in [item.value for item in said]
    sent = _messages(node)
    assert sent[-1].to_incident().severity is Severity.CRITICAL
    expected = [Verdict.FIRST] if at_once else [Verdict.FIRST, Verdict.WORSE]
    assert [one.verdict for one in sent] == expected


def _messages(node: Node) -> list[Notice]:
    """What a channel that can be reached is sent, transition by transition."""
    chat = ChannelProfile(name="chat", minimum_severity=Severity.WARNING)
    alerts = AlertsSettings(cause_wait_seconds=0.0)
    sent: list[Notice] = []
    for step in node.transitions:
        notice = decide(step, [chat], sent, step.at, alerts)[-1]
        if notice.due_at == step.at:
            tried = attempt_started(notice, step.at, 15.0)
            sent.append(attempt_ended(tried, Delivered(), step.at, 0.5, alerts)[0])
    return sent


def test_a_flood_of_more_sorts_than_are_kept_apart_is_bounded_and_counted(tmp_path: Path) -> None:
    node = Node(tmp_path, most_bursts=50)
    lesser = [
        Line(gpu="GPU-1", code=code, unit=unit, link=link)
        for code in DECODED
        for unit in ("RLW_CTRL", "RLW_REMAP", "RLW_RSPCOL")
        for link in range(18)
    ]
    node.reports(lesser)
    assert len(node.told) <= 50 + len(DECODED)
    (at_once,) = node.reports([Line(gpu="GPU-1", code=149, unit="NETIR_LINK_EVT", fatal=True)])
    assert "Fatal" in at_once.message
    (incident,) = node.incidents("GPU-1")
    assert incident.severity is Severity.CRITICAL
    assert incident.title.startswith("Xid 149")
    node.hears(node.book.flush())
    assert sum(event.count for event in node.told) == len(lesser) + 1


@pytest.mark.medium
@pytest.mark.parametrize("others", [499, 500, 501, 2000])
def test_what_the_analyzer_cannot_keep_is_counted_and_never_the_gravest(others: int) -> None:
    """It keeps 500 alike: a fatal report is not alike to nonfatal ones, however many come later."""
    analysis = Analysis(AnalyzerSettings())
    analysis.start([], Book())
    subject = replace(NODE, gpu="GPU-1")
    for number in range(others + 1):
        word = "Nonfatal" if number else "Fatal"
        event = Event(
            kind=EventKind.XID,
            subject=subject,
            at=NOW + timedelta(seconds=number),
            id=str(number),
            xid=145,
            message=f"Xid 145: RLW_CTRL {word} XC1 i0 Link 08 (0x0 0x0)",
        )
        analysis.ingest(event.to_record())
    fleet = analysis._fleet
    fleet.forget(NOW + timedelta(hours=1))
    kept = fleet.events()[NODE.key]
    assert sum(event.count for event in kept) == others + 1
    assert len(kept) == min(others, 500) + 1
    assert any(" Fatal " in event.message for event in kept)
