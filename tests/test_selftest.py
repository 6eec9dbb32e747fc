"""The selftest's faults, given to the real analyzer: each rule fires, and nobody else hears of it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.analysis import Analysis, Reading
from analyzer.correlation.all_detectors import DETECTORS, questions
from analyzer.hub_queries import rows, without_old_selftests
from analyzer.incidents.book import Book
from gpuvigil.clock import ManualClock
from gpuvigil.config import AnalyzerSettings
from gpuvigil.faults import FAULTS, Fault
from gpuvigil.lifecycle import ACTIVE
from gpuvigil.model import Incident, RecordKind
from gpuvigil.model.selftest_nodes import OVER_AFTER, node_name, over
from gpuvigil.store.memory import MemoryStore
from simulator.selftest.outcome import outcomes, table
from simulator.selftest.play import Play, names

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)


class Site:
    """The analyzer beside a store in memory, and one run of the selftest."""

    def __init__(
        self, chosen: AnalyzerSettings, faults: Sequence[Fault] = tuple(FAULTS.values())
    ) -> None:
        self.now = NOON
        self.settings = chosen
        self.play = Play(run="t1", began=NOON, settings=chosen, faults=faults)
        self.store = MemoryStore(clock=ManualClock(NOON))
        self.analysis = Analysis(chosen, DETECTORS)
        self.analysis.start([], Book())
        self.heard = dict.fromkeys((node.subject.key for node in self.play.nodes), NOON)
        self.incidents: dict[str, Incident] = {}
        for node in self.play.nodes:
            self.store.write("\n".join(self.play.history(node)).encode())
        inventories = (self.play.inventory(node).to_record() for node in self.play.nodes)
        for record in (*inventories, *(one.to_record() for one in self.play.allocations())):
            self.analysis.ingest(record)

    def tell(self) -> None:
        for event in self.play.events(self.now):
            self.analysis.ingest(event.to_record())

    def passes(self, seconds: float, count: int, *, ticking: bool) -> None:
        """So many passes, so far apart; the nodes send before each of them, or have ended."""
        for _ in range(count):
            self.now += timedelta(seconds=seconds)
            for node in self.play.nodes:
                if ticking and not node.fault.selftest.is_silent:
                    self.store.write("\n".join(self.play.lines(node, self.now)).encode())
                    self.heard[node.subject.key] = self.now
            ahead = {
                node.subject.key: node.fault.selftest.clock_ahead_seconds
                for node in self.play.nodes
                if node.fault.selftest.clock_ahead_seconds
            }
            read = without_old_selftests(
                Reading(
                    now=self.now,
                    last_seen=self.heard,
                    listening_since=NOON - timedelta(hours=1),
                    clocks=ahead,
                )
            )
            answers = rows(
                [self.store], questions(DETECTORS), self.now, self.settings, without=read.over
            )
            self.analysis.run_pass(replace(read, rows=answers))
            for unit in self.analysis.to_write():
                for record in unit:
                    if record.kind is RecordKind.INCIDENT:
                        self.incidents[record.id] = Incident.from_record(record)

    def silent(self) -> Sequence[str]:
        """The faults of which nothing is told."""
        seen = dict.fromkeys(self.incidents, 0.0)
        found = outcomes(self.play, self.incidents.values(), seen)
        return [one.fault for one in found if one.seconds is None]

    def active(self) -> Sequence[str]:
        states = {state.value for state in ACTIVE}
        return sorted(one.fault for one in self.incidents.values() if one.state in states)


def test_there_is_a_fault_for_everything_that_a_detector_can_tell() -> None:
    told = {(row.detector, key) for key, row in FAULTS.items()}
    assert told == {(one.name, fault) for one in DETECTORS for fault in one.faults}
    nodes = [name for row in FAULTS.values() for name in names(row)]
    assert len(nodes) == len(set(nodes))


@pytest.mark.slow
def test_every_rule_fires_and_all_of_it_ends_when_the_nodes_are_silent() -> None:
    site = Site(AnalyzerSettings())
    site.passes(10.0, 1, ticking=True)
    site.tell()
    site.passes(10.0, 5, ticking=True)
    assert site.silent() == []
    # One incident for each, and nothing beside it.
    assert site.active() == sorted(FAULTS)
    assert all(one.marked for one in site.incidents.values())
    # What rests on events counts from when they were told.
    found = outcomes(site.play, site.incidents.values(), dict.fromkeys(site.incidents, 30.0), 25.0)
    seconds = {one.fault: one.seconds for one in found}
    assert (seconds["gpu_lost"], seconds["host_memory"]) == (5.0, 5.0)
    assert (seconds["gpu_hot"], seconds["node_silent"]) == (30.0, 30.0)
    site.passes(10.0, 9, ticking=False)
    assert site.active() == []


@pytest.mark.medium
def test_a_rule_that_is_switched_off_is_told_by_name() -> None:
    few = [row for row in FAULTS.values() if row.detector in {"gpu_lost", "gpu_xid"}]
    site = Site(AnalyzerSettings(xid_overrides=("64=ignore",)), few)
    site.tell()
    site.passes(10.0, 6, ticking=True)
    assert site.silent() == ["gpu_xid"]
    found = outcomes(site.play, site.incidents.values(), dict.fromkeys(site.incidents, 0.0))
    lines = list(table(found))
    assert lines[-1] == "1 rule did not fire: gpu_xid"
    assert sum("did not fire" in line for line in lines[:-1]) == 1


@settings(max_examples=40)
@given(
    ages=st.dictionaries(
        st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["x", "y", "z"])),
        st.floats(0.0, 300.0),
        min_size=1,
    )
)
def test_a_run_is_over_once_none_of_its_nodes_was_heard_for_a_while(
    ages: dict[tuple[str, str], float],
) -> None:
    heard = {
        f"selftest/{node_name(run, what)}": NOON - timedelta(seconds=age)
        for (run, what), age in ages.items()
    }
    real = {"local/node-1": NOON - timedelta(days=3)}
    gone = over({**heard, **real}, NOON)
    for run in ("a", "b"):
        own = {key for key in heard if key.startswith(f"selftest/{run}.")}
        newest = max((heard[key] for key in own), default=NOON)
        assert own & gone == (own if NOON - newest > OVER_AFTER else set())
    assert not gone & real.keys()
