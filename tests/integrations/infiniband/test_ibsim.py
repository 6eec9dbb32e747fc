"""Faults of a real subnet, read by the real tools: which cable, which switch, and nothing beside it.

The subnet is ibsim's with an OpenSM; the clock is ours, so that looks may follow each other at once.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path

import pytest

from analyzer.detectors.port_degraded import degraded_ports
from analyzer.detectors.port_down import broken_ports
from analyzer.detectors.port_errors import bad_ports
from analyzer.detectors.switch_down import switches_down
from analyzer.fleet_state import Fleet
from analyzer.window.window import Window
from gpuvigil.clock import ManualClock
from gpuvigil.config import AnalyzerSettings
from gpuvigil.model import Finding, Inventory, PortIdentity, Record, Subject
from gpuvigil.topology import Question, from_switches, learn
from integrations.fabric.watch import Watch
from integrations.infiniband.infiniband_command import log, read_switches
from integrations.infiniband.tools import Fabric
from tests.ibsim import PROGRAMS, Ibsim

pytestmark = [pytest.mark.server, pytest.mark.site]

NOON = datetime(2026, 11, 27, 12, tzinfo=timezone.utc)
TIMES = 10
SEED = 20261127
FIND = (broken_ports, degraded_ports, bad_ports, switches_down)


class Site:
    """A subnet, who reads it, and what the analyzer makes of that."""

    def __init__(self, subnet: Ibsim, folder: Path) -> None:
        self.subnet, self.random = subnet, random.Random(SEED)
        self._clock, self._fleet = ManualClock(NOON), Fleet()
        looking = partial(read_switches, Fabric(folder, 30.0))
        self._watch = Watch(looking, "c", folder / "switches.json", self._clock, log)

    def look(self, times: int = 2) -> None:
        for _ in range(times):
            self._clock.advance(60.0)
            self._watch.round(self._take)

    def _take(self, records: Sequence[Record]) -> None:
        for record in records:
            self._fleet.ingest(record)

    @property
    def window(self) -> Window:
        return Window(
            now=self._clock.now(), settings=AnalyzerSettings(), switches=self._fleet.switches()
        )

    def found(self) -> list[Finding]:
        window = self.window
        return [finding for find in FIND for finding in find(window)]

    def rest(self) -> None:
        """Until errors are old, and links trained."""
        self.look(1)
        self._clock.advance(660.0)
        self.look(1)
        assert self.found() == []

    def a_cable(self) -> tuple[str, int]:
        """Between two switches."""
        leaf = self.subnet.leaf(self.random.randint(1, self.subnet.leaves))
        spine = self.subnet.spine(self.random.randint(1, self.subnet.spines))
        return leaf, self.subnet.port_to(leaf, spine)


@pytest.fixture(scope="module")
def subnet(
    tmp_path_factory: pytest.TempPathFactory, needs: Callable[[str, str], str]
) -> Iterator[Ibsim]:
    for program in PROGRAMS:
        needs(program, "scripts/install-test-servers")
    with Ibsim(tmp_path_factory.mktemp("ib")) as running:
        yield running


@pytest.fixture
def site(subnet: Ibsim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    for name, value in subnet.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(subnet.folder)
    found = Site(subnet, tmp_path)
    found.look()
    assert found.found() == []
    assert len(found.window.switches) == subnet.leaves + subnet.spines
    return found


def named(found: Sequence[Finding]) -> list[tuple[str, str, str]]:
    return [(it.fault, it.subject.node, it.subject.port or "") for it in found]


def test_a_cable_with_errors_is_named_by_its_leaf(site: Site) -> None:
    counts: dict[tuple[str, int], int] = {}
    for _ in range(TIMES):
        leaf, port = site.a_cable()
        far = site.subnet.ports_of(leaf)[port]
        end = site.random.choice([(leaf, port), far])
        counts[end] = counts.get(end, 0) + site.random.randint(30, 300)
        site.subnet.errors(*end, count=counts[end])
        site.look(1)
        assert named(site.found()) == [("port_errors", leaf, str(port))]
        site.rest()


def test_what_a_port_drops_is_counted_and_is_no_fault(site: Site) -> None:
    leaf, port = site.a_cable()
    site.subnet.errors(leaf, port, "PortXmitDiscards", count=7)
    site.look(1)
    dropped = {
        (switch.subject.node, it.number): it.counts[-1].transmit_discards
        for switch in site.window.switches.values()
        for it in switch.ports
    }
    assert dropped.pop((leaf, port)) == 7
    assert set(dropped.values()) == {0}
    assert site.found() == []


def test_a_cable_that_is_out_is_named_by_its_leaf(site: Site) -> None:
    for _ in range(TIMES):
        leaf, port = site.a_cable()
        site.subnet.cut(leaf, port)
        site.look()
        assert named(site.found()) == [("port_down", leaf, str(port))]
        site.subnet.join(leaf, port)
        site.rest()


def test_a_leaf_that_is_off_is_named_and_nothing_else_is(site: Site) -> None:
    for _ in range(TIMES):
        leaf = site.subnet.leaf(site.random.randint(2, site.subnet.leaves))  # we are at the first
        site.subnet.cut(leaf)
        site.look()
        assert named(site.found()) == [("switch_down", leaf, "0")]
        assert [it.condition for it in site.found()] == ["switch_lost"]
        site.subnet.join(leaf)
        site.rest()


def test_a_cable_with_one_lane_is_named_by_its_leaf(site: Site) -> None:
    for _ in range(TIMES):
        leaf, port = site.a_cable()
        site.subnet.width(leaf, port, 1)
        site.look()
        assert named(site.found()) == [("port_degraded", leaf, str(port))]
        site.subnet.width(leaf, port, 4)
        site.rest()


def test_two_cables_of_a_host_that_are_swapped_are_named(site: Site) -> None:
    subnet = site.subnet
    nodes = [
        Inventory(
            subject=Subject(cluster="c", node=f"host{n:02}"),
            at=NOON,
            boot="b",
            tick_seconds=10.0,
            version="1",
            ports=tuple(
                PortIdentity(
                    device=f"mlx5_{rail}", port="1", kind="infiniband", role="fabric", was_up=True
                )
                for rail in range(subnet.rails)
            ),
        )
        for n in range(1, subnet.hosts + 1)
    ]

    def doubts() -> list[tuple[Question, set[tuple[str, str]]]]:
        found = learn(nodes, from_switches(site.window.switches.values())).doubts
        return [(it.question, set(it.ports)) for it in found]

    assert doubts() == []
    for _ in range(TIMES):
        host = site.random.randint(1, subnet.hosts)
        one, other = site.random.sample(range(subnet.rails), 2)
        ends = [(subnet.host(host, rail), 1) for rail in (one, other)]
        subnet.swap(*ends)
        site.look()
        name = f"host{host:02}"
        expected = {(name, f"mlx5_{one}"), (name, f"mlx5_{other}")}
        assert doubts() == [(Question.SWAPPED, expected)]
        subnet.swap(*ends)
        site.look()
        assert doubts() == []


def test_a_subnet_that_is_gone_is_said_and_nothing_is_told_of_it(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    before = site.window.switches
    site.subnet.cut(site.subnet.leaf(1))  # where the reader itself is
    site.look(1)
    assert "the fabric is not read" in caplog.text
    assert site.window.switches == before
    site.subnet.join(site.subnet.leaf(1))
    site.look(1)
    assert "the fabric is read again" in caplog.text or site.window.switches != before
    assert timedelta(0) < site.window.now - NOON
