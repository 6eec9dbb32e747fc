"""What somebody who is woken reads of what is between switches, and of cables and settings that are wrong."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from alerts.channels.shared_parts import headline
from alerts.channels.slack import LONGEST_TEXT, payload
from alerts.decisions.decide import decide
from alerts.messages.message import Message, message
from alerts.routing.case import ChannelProfile
from analyzer.correlation.correlate import observe
from analyzer.detectors import (
    Detector,
    port_degraded,
    port_down,
    port_ecn,
    port_errors,
    rail_missing,
    switch_down,
)
from analyzer.detectors import port_miswired as wiring
from analyzer.incidents.book import Book, advance
from analyzer.window.window import Window
from gpuvigil.config import AlertsSettings
from gpuvigil.lifecycle import Patience
from gpuvigil.model import ErrorCount, Severity, Subject
from tests.analyzer.scene import NOON, healthy, port
from tests.analyzer.test_ethernet_switches import changed as ethernet
from tests.analyzer.test_ethernet_switches import fabric as of_ethernet
from tests.analyzer.test_ethernet_switches import hearing
from tests.analyzer.test_fabric import HDR, MINUTE, Fabric, changed
from tests.analyzer.test_pfc import HEARD, asking, counts
from tests.analyzer.test_port_miswired import RAILS, SWAPPED
from tests.analyzer.test_port_miswired import fabric as wired
from tests.analyzer.test_rail_missing import SHORT
from tests.analyzer.test_rail_missing import scene as railed
from tests.analyzer.test_uplinks_down import cut, fabric, window

CHAT = ChannelProfile(name="chat", minimum_severity=Severity.INFO, every_change=False)
PASS = timedelta(seconds=30)
FINDERS: Sequence[Detector] = tuple(
    it.DETECTOR
    for it in (port_down, port_degraded, port_errors, switch_down, wiring, rail_missing, port_ecn)
)
JOB = (1, 2, 3)


def lost(name: str) -> Fabric:
    return {**fabric(), name: replace(fabric()[name], lost_at=NOON - 2 * MINUTE)}


def slow() -> Fabric:
    less = {"bits_per_second": HDR // 4, "lanes": 1, "since": NOON - MINUTE}
    return changed(changed(fabric(), "leaf1", 21, **less), "spine1", 1, **less)


def bad() -> Fabric:
    grown = (ErrorCount(at=NOON - 11 * MINUTE), ErrorCount(at=NOON - MINUTE, symbol_errors=300))
    return changed(fabric(), "leaf1", 21, counts=grown)


def one_sided() -> Window:
    switches = of_ethernet()
    for number, frames in HEARD.items():
        switches = ethernet(switches, "leaf1", f"Ethernet1/{number}", counts=counts(*frames))
    seen = asking(1, 2).window(FINDERS)
    heard = {key: hearing(it, "leaf1") for key, it in seen.inventories.items()}
    return replace(
        seen, switches={it.subject.key: it for it in switches.values()}, inventories=heard
    )


def deaf() -> Window:
    return healthy(nodes=4).rising(port(), "ecn_marked_packets", 50.0).window(FINDERS)


STORIES: Mapping[str, tuple[Callable[[], Window], str]] = {
    "a link between switches is down": (
        lambda: window(cut(("leaf1", 1)), JOB),
        "Link between two switches is down: leaf1 port 21 → spine1 port 1 (warning). Impact: job 1 of"
        " alice may be slower (3 GPUs on 3 nodes). Do now: Check the cable between these two switch"
        " ports.",
    ),
    "several links between switches are down": (
        lambda: window(cut(("leaf1", 1), ("leaf2", 1)), JOB),
        "Several links between switches are down: 2 links of spine1 (to leaf1, leaf2) (warning)."
        " Impact: job 1 of alice may be slower (3 GPUs on 3 nodes). Do now: Check what these links"
        " share: a switch, its line card or power, a bundle of cables.",
    ),
    "a leaf has no link left": (
        lambda: window(cut(("leaf1", 1), ("leaf1", 2)), JOB),
        "Leaf switch has lost all links to other switches: 2 links of leaf1 (to spine1, spine2)"
        " (critical). Impact: job 1 of alice may stand still (3 GPUs on 3 nodes). Do now: Check the"
        " leaf's uplink ports and cables, then the spines at their other ends.",
    ),
    "a link between switches is slow": (
        lambda: window(slow(), JOB),
        "Network link runs below its speed: leaf1 port 21 → spine1 port 1 (warning). Impact: job 1 of"
        " alice may be slower (3 GPUs on 3 nodes). Do now: Reseat or replace the cable or transceiver,"
        " then check that the link comes up at full speed.",
    ),
    "a link between switches is bad": (
        lambda: window(bad(), JOB),
        "Network link has physical errors: leaf1 port 21 → spine1 port 1 (warning). Impact: job 1 of"
        " alice may be slower (3 GPUs on 3 nodes). Do now: Reseat or replace the cable or transceiver;"
        " check the switch port's counters.",
    ),
    "a spine is lost": (
        lambda: window(lost("spine1"), JOB),
        "Switch does not answer: spine1 (warning). Impact: job 1 of alice may be slower (3 GPUs on 3"
        " nodes). Do now: Check the switch and its power.",
    ),
    "a leaf is lost": (
        lambda: window(lost("leaf1"), JOB),
        "Switch does not answer: switch leaf1 (critical). Impact: job 1 of alice: 3 GPUs on 3 nodes"
        " may suffer from this switch. Do now: Check the switch and its power.",
    ),
    "two cables are swapped": (
        lambda: wired({2: SWAPPED}),
        "Network cable is at the wrong leaf switch: node-2 mlx5_0 → leaf1 port swp0. Impact: no"
        " job over several nodes runs there. Do now: Move the cable to the leaf that the evidence"
        " names; exchange two that are swapped. Confirm with gpuvigil topology.",
    ),
    "a port is missing": (
        lambda: railed({2: SHORT}, usual=RAILS).window(FINDERS),
        "Node lacks a network port that its peers have: node-2. Impact: not allocated to anybody. Do now:"
        " Look for the card (lspci, ibdev2netdev); a port that was never up lacks its cable, or its"
        " switch port is off.",
    ),
    "PFC is set up at one end": (
        one_sided,
        "PFC is set up on one side of a link only: node-1 mlx5_0 → leaf1 port Ethernet1/1."
        " Impact: no job over several nodes runs there. Do now: Set up PFC for the same priorities at"
        " both ends of the link; the evidence says which end lacks it.",
    ),
    "ECN is not answered": (
        deaf,
        "RoCE port ignores congestion marks (ECN): node-1 mlx5_0. Impact: no job over several"
        " nodes runs there. Do now: Enable ECN on the host (DCQCN: notification point), as it is on"
        " the switches.",
    ),
}  # fmt: skip


def read(seen: Window) -> list[Message]:
    """What the chat hears of it in two looks."""
    book, told = Book(), []
    for number in range(2):
        stood = replace(seen, recent_incidents=tuple(book.active()))
        found = [it for detector in FINDERS for it in detector.find(stood)]
        looked = observe(stood, found, book.active(), book.believed(True))
        now = seen.now + number * PASS
        book, made = advance(book, looked, now, Patience())
        for transition in made:
            for notice in decide(transition, [CHAT], [], now, AlertsSettings()):
                told += [message(notice, now, "https://gpus.example.org")] * (
                    notice.to_state == "open"
                )
    return told


@pytest.mark.medium
@pytest.mark.parametrize("name", STORIES)
def test_it_is_told_once_with_both_ends_who_is_slower_and_what_to_do(name: str) -> None:
    seen, words = STORIES[name]
    (it,) = read(seen())
    assert headline(it) == words
    assert payload(it)["text"] == words
    assert len(words) <= LONGEST_TEXT


def test_other_ports_and_switches_are_named_as_people_name_them() -> None:
    (swapped,) = read(wired({2: SWAPPED}))
    assert swapped.where.endswith("cluster c; also node-2 mlx5_1")
    (links,) = read(window(cut(("leaf1", 1), ("leaf2", 1))))
    assert links.where.endswith("cluster c; also leaf2 port 21")
    assert Subject.parse(links.subject.key) == links.subject
