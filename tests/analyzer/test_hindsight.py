"""What a silence was is known once the node is back, in whatever order it tells."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.analysis import Analysis, Reading
from analyzer.correlation.all_detectors import DETECTORS
from analyzer.correlation.hindsight import hindsight
from analyzer.incidents.book import Book
from evaluation.judge.claims import claims
from evaluation.judge.fault_names import names
from gpuvigil.lifecycle import ACTIVE, State
from gpuvigil.model import (
    Event,
    EventKind,
    Incident,
    Inventory,
    Record,
    RecordKind,
    Severity,
    Transition,
)
from gpuvigil.silence_conditions import IN_ORDER, NodeSilence

from .scene import NOON, SETTINGS, Sample, allocation, event, gpu, healthy, inventory, node
from .test_silent_racks import RACKED

SECOND = timedelta(seconds=1)
BOOTED_LONG_AGO = event(EventKind.BOOT, node(), NOON - timedelta(days=3))
# By what a silence was, what is said of it in the end, and which fault that names.
TRUTHS = {
    "down": (NodeSilence.WAS_DOWN, {"dead node"}),
    "collector": (NodeSilence.DID_NOT_REPORT, {"dead collector"}),
    "way": (NodeSilence.CUT_OFF, {"cut off"}),
}
# What is said while it lasts is put right afterwards.
STILL_OPEN = (
    NodeSilence.DEAD,
    NodeSilence.COLLECTOR,
    NodeSilence.UNHEARD,
    NodeSilence.SCALED_DOWN,
)
LONG = healthy(seconds=300.0)


class Play:
    """Node 1 is silent from noon on for a while; every ten seconds the fleet is looked at."""

    def __init__(self, truth: str, away: int, delay: int) -> None:
        """`away`: seconds of silence; `delay`: from its first body to its boot event, in seconds."""
        self.truth, self.back = truth, NOON + away * SECOND
        booted = event(EventKind.BOOT, node(), self.back - 20 * SECOND)
        self.told = {"down": booted, "collector": BOOTED_LONG_AGO, "way": None}[truth]
        self.tells_at = self.back + delay * SECOND
        self.analysis = Analysis(SETTINGS, [d for d in DETECTORS if d.name == "node_silent"])
        busy = [allocation(gpu(n), f"pid {n}").to_record() for n in (1, 2)]
        self.analysis.start([*(i.to_record() for i in LONG.inventories), *busy], Book())
        self.transitions: list[Transition] = []

    def lives(self, seconds: int) -> None:
        for after in range(-10, seconds, 10):
            now = NOON + after * SECOND
            if self.told is not None and self.tells_at < now:
                self.takes(self.told)
            self.analysis.run_pass(self.reading(after * SECOND))
            for unit in self.analysis.to_write():
                steps = (r for r in unit if r.kind is RecordKind.TRANSITION)
                self.transitions += [Transition.from_record(record) for record in steps]

    def takes(self, told: Event) -> None:
        woken = self.analysis.ingest(told.to_record())
        if woken is not None:
            self.analysis.check_node(woken, self.tells_at)

    def reading(self, after: timedelta) -> Reading:
        now = NOON + after

        def unknown(sample: Sample) -> bool:
            lost = self.truth != "way" or now < self.back
            return sample.subject.of_node() == node() and lost and NOON < sample.at < self.back

        heard = min(now, NOON) if now < self.back else now
        window = LONG.shifted(after).without(unknown).window()
        return Reading(
            now=now,
            rows=window.rows,
            last_seen={node().key: heard, node(2).key: now},
            listening_since=NOON - timedelta(hours=1),
        )


@pytest.mark.medium
@settings(max_examples=5, deadline=None)
@given(st.sampled_from(sorted(TRUTHS)), st.sampled_from([60, 130]), st.integers(-9, 25))
def test_the_last_words_are_true_in_whatever_order_a_node_tells(
    truth: str, away: int, delay: int
) -> None:
    play = Play(truth, away, delay)
    play.lives(away + 60)
    (claim,) = (one for one in claims(play.transitions) if one.fault == "node_silent")
    was, kinds = TRUTHS[truth]
    assert claim.title == was.heading
    assert names("node_silent", claim.text) == kinds
    over = Incident.from_record(Record.from_json(play.transitions[-1].snapshot))
    assert (over.state, over.title) == (State.RESOLVED.value, was.heading)
    assert over.condition == was
    told = {one.name: one.value for one in over.evidence}["booted"]
    assert told.startswith("at " if truth == "down" else "not since it was last heard")
    assert truth != "collector" or told.endswith("up since 12:00:00 UTC on 28 Jan")
    assert play.analysis.book.active() == ()


def silence(**more: object) -> Incident:
    values = {
        "id": "i",
        "fingerprint": "f",
        "fault": "node_silent",
        "subject": node(),
        "severity": Severity.WARNING,
        "state": State.OPEN.value,
        "title": "Node stopped reporting",
        "since": NOON - timedelta(minutes=4),
        "updated_at": NOON,
        "version": 1,
        **more,
    }
    return Incident(**values)  # type: ignore[arg-type]


BOOTED = LONG.with_events(event(EventKind.BOOT, node(), NOON - timedelta(minutes=2)))


@pytest.mark.medium
@pytest.mark.parametrize(
    ("incident", "was"),
    [
        (silence(), NodeSilence.WAS_DOWN),
        *((silence(condition=open_.value), NodeSilence.WAS_DOWN) for open_ in STILL_OPEN),
        (silence(severity=Severity.INFO), NodeSilence.WAS_REBOOTED),
        *((silence(condition=settled), None) for settled in sorted(IN_ORDER)),
        (silence(condition=NodeSilence.NOT_RECEIVED.value), None),
        (
            silence(since=NOON - timedelta(minutes=1)),
            NodeSilence.CUT_OFF,
        ),  # booted before it fell silent
    ],
)
def test_a_boot_says_that_the_machine_was_down_but_where_it_went_in_order(
    incident: Incident, was: NodeSilence | None
) -> None:
    said = hindsight(BOOTED.window(), incident, [node()])
    assert (None if said is None else said.condition) == was


def test_a_clock_that_is_wrong_is_put_right_first() -> None:
    ahead = replace(BOOTED, clocks={node().key: 600.0})
    said = hindsight(ahead.window(), silence(), [node()])
    assert said is not None
    assert said.condition != NodeSilence.WAS_DOWN


def test_of_what_only_exporters_tell_nothing_is_concluded_from_no_boot() -> None:
    def scouted(one: Inventory) -> Inventory:
        return replace(one, version="")

    scene = replace(LONG, inventories=(scouted(inventory(node())), inventory(node(2))))
    assert hindsight(scene.window(), silence(), [node()]) is None


def test_a_rack_whose_nodes_booted_was_down() -> None:
    nodes = [node(n) for n in (2, 4, 5)]
    rack = silence(members=tuple(n.key for n in (node(), *nodes)), title="Node stopped reporting")
    boots = (event(EventKind.BOOT, n, NOON - SECOND * 90) for n in nodes)
    said = hindsight(RACKED.with_events(*boots).window(), rack, nodes)
    assert said is not None
    assert (said.condition, said.sure) == (NodeSilence.RACK_WAS_DOWN, True)
    assert said.evidence[0].value.startswith("3 from")
    assert rack.state in {state.value for state in ACTIVE}
