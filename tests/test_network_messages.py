"""What somebody who is woken reads of a network fault, and how often, from its begin to its end."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from alerts.channels.shared_parts import headline
from alerts.channels.slack import LONGEST_TEXT, payload
from alerts.decisions.attempts import attempt_ended, attempt_started
from alerts.decisions.decide import decide
from alerts.messages.channel import Delivered
from alerts.messages.message import Message, message
from alerts.routing.case import ChannelProfile
from alerts.routing.notice import Notice, NoticeState
from analyzer.correlation.all_detectors import DETECTORS
from analyzer.correlation.correlate import observe
from analyzer.incidents.book import Book, advance
from analyzer.window.window import Window
from gpuvigil.config import AlertsSettings
from gpuvigil.faults import FAULTS, About
from gpuvigil.lifecycle import Patience
from gpuvigil.model import Event, EventKind, PortIdentity, Severity, Subject
from tests.analyzer.scene import (
    GPU_FIELDS,
    NODE_FIELDS,
    NOON,
    PORT_FIELDS,
    SETTINGS,
    TICK,
    Sample,
    allocation,
    event,
    gpu,
    healthy,
    node,
    port,
)

# A webhook, which can mend nothing that it has said.
CHAT = ChannelProfile(name="chat", minimum_severity=Severity.WARNING, every_change=False)
OF_NETWORK = [
    it
    for it in DETECTORS
    if any(FAULTS[fault].about in {About.PORT, About.SWITCH} for fault in it.faults)
]
LOOKED_AT = [*OF_NETWORK, *(it for it in DETECTORS if it.name == "driver_silent")]
MINUTE, PASS = 60.0, 30.0
LIMITS = replace(SETTINGS, steady_seconds=600.0, trend_seconds=1800.0, port_down_seconds=30.0)
FLEET = replace(healthy(nodes=6, seconds=10.0, gpus=1), settings=LIMITS)
PAUSED, DROPPED = "receive_pause_microseconds", "transmit_discards"
BAD, RESENT, UNTAKEN = "symbol_errors", "retransmits", "transmit_pause_microseconds"
MOVED = ("receive_bytes", "transmit_bytes")
# Minutes of a story; its fault begins at 0.
BEFORE, END, AFTER = 31.0, 10.0, 24.0

NOTHING: Mapping[str, int] = {}
Rates = Mapping[str, float]
"""What counters of a port gain per second."""


@dataclass(frozen=True, kw_only=True)
class Spell:
    """What a port does differently from one minute to another."""

    of: Subject
    begin: float
    end: float
    gains: Rates = field(default_factory=dict)
    lost: float = 0.0  # share of its traffic
    shows: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Shift:
    """The analyzer and the chat of one story: a job over four nodes of six, whose ports are at one leaf."""

    spells: Sequence[Spell]
    events: Sequence[Event] = ()
    rails: Sequence[str] = ("mlx5_0", "mlx5_1")
    halts: float | None = None  # the minute from which on the job's GPUs only spin
    read: list[Message] = field(default_factory=list)

    def run(self, until: float = AFTER) -> "Shift":
        every, book, notices = self._samples(until), Book(), dict[str, Notice]()
        steps = int(until * MINUTE / PASS)
        for step in range(steps):
            now = _at(step * PASS / MINUTE)
            window = replace(self._window(every, now), recent_incidents=tuple(book.active()))
            found = [it for detector in OF_NETWORK for it in detector.find(window)]
            seen = observe(window, found, book.active(), book.believed(True))
            book, made = advance(book, seen, now, Patience())
            for transition in made:
                mine = [it for it in notices.values() if it.incident == transition.incident]
                told = decide(transition, [CHAT], mine, now, AlertsSettings())
                notices |= {it.id: it for it in told}
            self._deliver(notices, now)
        return self

    def _deliver(self, notices: dict[str, Notice], now: datetime) -> None:
        for it in list(notices.values()):
            if it.state is NoticeState.DUE and (it.due_at or now) <= now:
                self.read.append(message(it, now, "https://gpus.example.org"))
                done = attempt_ended(
                    attempt_started(it, now, 15.0), Delivered(), now, 0.5, AlertsSettings()
                )
                notices |= {one.id: one for one in done}

    def _window(self, every: Sequence[Sample], now: datetime) -> Window:
        ports = tuple(
            PortIdentity(device=name, port="1", kind="infiniband", role="fabric", was_up=True,
                         switch=f"leaf-{name[-1]}", switch_port="7")
            for name in self.rails
        )  # fmt: skip
        return replace(
            FLEET,
            now=now,
            samples=tuple(it for it in every if it.at < now),
            events=tuple(it for it in self.events if it.at <= now),
            inventories=tuple(replace(it, ports=ports) for it in FLEET.inventories),
            allocations=tuple(
                allocation(replace(node(n), gpu=f"GPU-{n}-0"), "job 7") for n in (1, 2, 3, 4)
            ),
            heard=dict.fromkeys(FLEET.heard, now),
            listening_since=NOON - timedelta(hours=3),
        ).window(LOOKED_AT)

    def _samples(self, until: float) -> list[Sample]:
        found = [
            Sample(subject=node(n), at=_at(tick * TICK / MINUTE), fields=NODE_FIELDS)
            for n in range(1, 7)
            for tick in range(-2, int(until * MINUTE / TICK))
        ]
        found += self._gpus(until)
        subjects = [replace(port(n), device=name) for n in range(1, 7) for name in self.rails]
        first, last = -int(BEFORE * MINUTE / TICK), int(until * MINUTE / TICK)
        for subject in subjects:
            total: dict[str, float] = {name: PORT_FIELDS[name] for name in (*MOVED, PAUSED)}
            mine = [it for it in self.spells if it.of == subject]
            for tick in range(first, last):
                now = [it for it in mine if it.begin <= tick * TICK / MINUTE < it.end]
                gains: dict[str, float] = dict.fromkeys(MOVED, 1e9) | {PAUSED: 1_000.0}
                for it in now:
                    gains |= dict(it.gains)
                    gains |= {name: gains[name] * (1.0 - it.lost) for name in MOVED}
                for name, rate in gains.items():
                    total[name] = total.get(name, PORT_FIELDS[name]) + rate * TICK
                fields = {**PORT_FIELDS, **{name: int(value) for name, value in total.items()}}
                for it in now:
                    fields |= it.shows
                found.append(Sample(subject=subject, at=_at(tick * TICK / MINUTE), fields=fields))
        return found

    def _gpus(self, until: float) -> Iterator[Sample]:
        for number in (1, 2, 3, 4) if self.halts is not None else ():
            for tick in range(-60, int(until * MINUTE / TICK)):
                spins = (self.halts or 0.0) <= tick * TICK / MINUTE < END
                watts = {"power_watts": 200.0 if spins else 550.0}
                yield Sample(
                    subject=gpu(number),
                    at=_at(tick * TICK / MINUTE),
                    fields={**GPU_FIELDS, **watts},
                )


def _at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def congested(of: Subject, begin: float = 0.0, end: float = END, lost: float = 0.4) -> Spell:
    return Spell(of=of, begin=begin, end=end, gains={PAUSED: 300_000.0}, lost=lost)


def lost_link(number: int, begin: float = 0.0, end: float = END, device: str = "mlx5_0") -> Spell:
    of = replace(port(number), device=device)
    return Spell(of=of, begin=begin, end=end, lost=1.0, shows={"up": 0, "physical_state": 2})


def told_of(spells: Iterable[Spell]) -> list[Event]:
    """What the nodes say of links that go and come."""
    return [
        event(kind, it.of, _at(minutes))
        for it in spells
        for kind, minutes in ((EventKind.PORT_DOWN, it.begin), (EventKind.PORT_UP, it.end))
    ]


EVERY = [port(number) for number in (1, 2, 3, 4)]
HIT = port(2)
RAILS = [replace(HIT, device=name) for name in ("mlx5_0", "mlx5_1")]
LEAF = [lost_link(number, number / MINUTE) for number in (1, 2, 3, 4)]
CABLE, NODE = [lost_link(2)], [lost_link(2, device=it.device or "") for it in RAILS]
FLAPS = [lost_link(2, minute, minute + 0.2) for minute in (0, 2, 4, 6)]


def less(but: Iterable[Subject], lost: float) -> list[Spell]:
    """The job's other ports carry less, too: it goes at the pace of its slowest link."""
    others = (replace(it, device=name.device) for it in EVERY for name in RAILS)
    return [Spell(of=it, begin=0.0, end=END, lost=lost) for it in others if it not in but]


def hit(gains: Rates, lost: float = 0.0, shows: Mapping[str, int] = NOTHING) -> list[Spell]:
    """Node 2's first port."""
    own = Spell(of=HIT, begin=0.0, end=END, gains=gains, lost=lost, shows=shows)
    return [own, *(less([HIT], lost) if lost else ())]


SUFFERS = "Impact: job 7 of alice: 4 GPUs on 4 nodes may suffer from this port."
STORIES: Mapping[str, tuple[Shift, str]] = {
    "a link is gone": (
        Shift(CABLE, told_of(CABLE)),
        f"Network port is down: node-2 mlx5_0 → leaf-0 port 7 (warning). {SUFFERS}"
        " Do now: Check the cable and the switch port at the other end.",
    ),
    "a link is gone, and its job stands still": (
        Shift(CABLE, told_of(CABLE), halts=0.0),
        "Network port is down: node-2 mlx5_0 → leaf-0 port 7 (warning). Impact: job 7 of alice:"
        " 4 GPUs on 4 nodes wait for this port. Do now: Check the cable and the switch port at the other end.",
    ),
    "all links of a node are gone": (
        Shift(NODE, told_of(NODE)),
        "Node lost all its fabric ports: node-2 (critical). Impact: job 7 of alice: 4 GPUs on 4 nodes"
        " may suffer from this node. Do now: Check the node's network card and cables, then the switch"
        " at their other end; the node itself still reports.",
    ),
    "a link flaps": (
        Shift(FLAPS, told_of(FLAPS)),
        f"Network port flaps: node-2 mlx5_0 → leaf-0 port 7 (warning). {SUFFERS} Do now: Reseat or replace the"
        " cable or transceiver; check the switch port's error counters.",
    ),
    "a leaf is gone": (
        Shift(LEAF, told_of(LEAF)),
        "Ports of one switch are down on several nodes: switch leaf-0 (mlx5_0 of node-1, node-2,"
        " node-3 and 1 more node) (critical). Impact: job 7 of alice: 4 GPUs on 4 nodes may suffer"
        " from this switch. Do now: Check the leaf switch and its power.",
    ),
    "a cable is bad": (
        Shift(hit({BAD: 1.0})),
        f"Network link has physical errors: node-2 mlx5_0 → leaf-0 port 7 (warning). {SUFFERS} Do now: Reseat"
        " or replace the cable or transceiver; check the switch port's counters.",
    ),
    "a link trained anew with fewer lanes": (
        Shift(hit({PAUSED: 225_000.0}, 0.3, {"speed_bits_per_second": 10**11, "width_lanes": 1})),
        f"Network link runs below its speed: node-2 mlx5_0 → leaf-0 port 7 (warning). {SUFFERS} Do now: Reseat"
        " or replace the cable or transceiver, then check that the link comes up at full speed.",
    ),
    "a host takes too little": (
        Shift(hit({UNTAKEN: 300_000.0}, 0.3)),
        f"Host cannot keep up with what its network port receives: node-2 mlx5_0 → leaf-0 port 7 (warning)."
        f" {SUFFERS} Do now: Check the host: PCIe link of the network card, CPU and memory load,"
        " receive buffers, PFC settings.",
    ),
    "packets are lost": (
        Shift(hit({RESENT: 200.0}, 0.3)),
        "Network path loses packets: node-2 mlx5_0 → leaf-0 port 7 (warning). Impact: job 7 of alice moves 30 %"
        " less data (4 GPUs on 4 nodes). Do now: Check the port's cable, then the error counters of"
        " the switch ports along the path.",
    ),
    "a link that four nodes share loses packets": (
        Shift([Spell(of=it, begin=0.0, end=END, gains={RESENT: 200.0}, lost=0.3) for it in EVERY]),
        "Several nodes of one leaf switch lose packets: switch leaf-0 (mlx5_0 of node-1, node-2, node-3"
        " and 1 more node) (warning). Impact: job 7 of alice moves 30 % less data (4 GPUs on 4 nodes)."
        " Do now: Check error counters at both ends of the leaf's uplinks; replace the cable that has errors.",
    ),
    "a module is hot": (
        Shift(hit({}, shows={"module_celsius": 82})),
        f"Transceiver is too hot or broken: node-2 mlx5_0 → leaf-0 port 7 (warning). {SUFFERS} Do now: Check"
        " the airflow and the cage; replace the transceiver.",
    ),
    "a port waits for others": (
        Shift([congested(HIT), *less([HIT], 0.4)]),
        "Network congestion slows a port: node-2 mlx5_0 → leaf-0 port 7 (warning). Impact: job 7 of alice moves"
        " 35 % less data (4 GPUs on 4 nodes). Do now: Check whether the uplinks of its leaf switch are"
        " full, then what else sends through them.",
    ),
    "all ports of a node wait": (
        Shift([*map(congested, RAILS), *less(RAILS, 0.4)]),
        "Node's network is slow: node-2 (warning). Impact: job 7 of alice moves 40 % less data (4 GPUs"
        " on 4 nodes). Do now: Check the node's network settings (PFC, ECN, MTU), then its switch"
        " ports.",
    ),
    "a leaf is full": (
        Shift([congested(it, begin) for it, begin in zip(EVERY, (0.0, 0.5, 3.0, 6.0), strict=True)]),
        "Leaf switch is congested: switch leaf-0 (mlx5_0 of node-1, node-2) (warning). Impact: job 7 of"
        " alice moves 37 % less data (4 GPUs on 4 nodes). Do now: Check whether the leaf's uplinks are"
        " full, which jobs send through it, and for a host that receives too slowly.",
    ),
    "a leaf drops packets": (
        Shift([Spell(of=it, begin=0.0, end=END, gains={DROPPED: 400.0}) for it in EVERY]),
        "Leaf switch is congested: switch leaf-0 (mlx5_0 of node-1, node-2, node-3 and 1 more node)"
        " (warning). Impact: job 7 of alice: 4 GPUs on 4 nodes may suffer from this switch. Do now:"
        " Check whether the leaf's uplinks are full, which jobs send through it, and for a host that"
        " receives too slowly.",
    ),
    "all rails of a job wait": (
        Shift([congested(replace(it, device=name.device)) for it in EVERY for name in RAILS]),
        "Network congestion slows several nodes: node-1, node-2, node-3 and 1 more node (warning)."
        " Impact: job 7 of alice moves 40 % less data (4 GPUs on 4 nodes). Do now: Check what these"
        " ports share: the spines, the links to them, and the jobs that send there.",
    ),
}  # fmt: skip


@pytest.mark.medium
@pytest.mark.parametrize("name", STORIES)
def test_a_fault_of_the_network_is_told_once_in_plain_words_and_once_when_it_is_over(
    name: str,
) -> None:
    shift, words = STORIES[name]
    first, *over = shift.run().read
    assert headline(first) == words
    # A phone shows it to the end.
    assert payload(first)["text"] == words
    assert len(words) <= LONGEST_TEXT
    assert [it.firing for it in over] in ([False], [])
    assert len(over) == 1 or name == "a link flaps"


@pytest.mark.medium
@pytest.mark.parametrize("spells", [
    # Told by the longer look, since less than 15 % is lost.
    [congested(it, lost=0.12) for it in EVERY],
    hit({UNTAKEN: 300_000.0}, 0.3),
    hit({RESENT: 60.0}, 0.12),
])  # fmt: skip
def test_a_fault_is_told_to_have_begun_when_it_did(spells: Sequence[Spell]) -> None:
    (first, over) = Shift(spells).run().read
    assert abs(first.starts_at - NOON) <= timedelta(seconds=30)
    assert over.starts_at == first.starts_at


@pytest.mark.medium
def test_a_second_port_of_a_leaf_long_after_the_first_makes_one_matter_of_both() -> None:
    spells = [congested(it, at, 20.0, 0.12) for it, at in ((EVERY[0], 0.0), (EVERY[1], 11.0))]
    read = Shift(spells).run(50.0).read
    assert [(it.firing, it.fault, it.summary) for it in read] == [
        (True, "port_congested", "Network congestion slows a port: node-1 mlx5_0 → leaf-0 port 7"),
        (True, "switch_congested", "Update: Leaf switch is congested: switch leaf-0 (mlx5_0 of node-1, node-2)"),
        (False, "switch_congested", "Resolved after 21 min: Leaf switch is congested: switch leaf-0 (mlx5_0 of node-1, node-2)"),
    ]  # fmt: skip
    assert len({it.incident for it in read}) == 1


BAD_THEN_LOST = [
    *hit({BAD: 1.0}),
    Spell(of=HIT, begin=5.0, end=END, lost=1.0, shows={"up": 0, "physical_state": 2}),
]


@pytest.mark.medium
def test_a_bad_cable_that_loses_its_link_is_one_matter_of_three_messages() -> None:
    read = Shift(BAD_THEN_LOST, told_of([lost_link(2, 5.0)])).run(40.0).read
    assert [(it.firing, it.summary) for it in read] == [
        (True, "Network link has physical errors: node-2 mlx5_0 → leaf-0 port 7"),
        (True, "Update: Network port is down: node-2 mlx5_0 → leaf-0 port 7"),
        (
            False,
            "Resolved after 19 min: Network link has physical errors: node-2 mlx5_0 → leaf-0 port 7",
        ),
    ]
    assert len({it.incident for it in read}) == 1
    assert "down since: 12:05:00" in read[1].evidence
    # Jobs wait for it now: that is worth a sound also where a channel mends what it has said.
    assert read[1].loud


HOT: Mapping[str, int] = {"module_celsius": 82}
GONE = Spell(of=HIT, begin=5.0, end=END, lost=1.0, shows={"up": 0, "physical_state": 2})


@pytest.mark.medium
@pytest.mark.parametrize(
    ("spells", "titles"),
    [
        (
            [*hit({BAD: 1.0}, shows=HOT), GONE],
            ["Transceiver is too hot or broken", "Update: Network port is down"],
        ),
        (
            [*hit({BAD: 1.0}), Spell(of=HIT, begin=4.0, end=END, shows=HOT), GONE],
            [
                "Network link has physical errors",
                "Update: Network port is down",
                "Update: Transceiver is too hot or broken",  # the link is back before it is cool
            ],
        ),
        (
            [*hit({BAD: 1.0}), Spell(of=HIT, begin=4.0, end=END, shows=HOT)],
            ["Network link has physical errors", "Update: Transceiver is too hot or broken"],
        ),
    ],
)
def test_a_hot_module_its_errors_and_its_lost_link_are_one_matter(
    spells: Sequence[Spell], titles: Sequence[str]
) -> None:
    events = told_of([GONE]) if GONE in spells else ()
    *read, over = Shift(spells, events).run(45.0).read
    assert [it.summary.partition(": node-2")[0] for it in read] == titles
    assert (over.firing, over.incident) == (False, read[0].incident)
    assert len({it.incident for it in read}) == 1
