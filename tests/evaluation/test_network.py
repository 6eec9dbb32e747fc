"""What switch counters add: the fleets that are played for it, and what is written of them."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import Any

import pytest

from analyzer.evidence.fabric_links import NOT_OBSERVABLE
from analyzer.window.window import Window
from evaluation.network.fleets import FELT, GROUPS, OF_LEAVES, OF_LINKS, fleet_of
from evaluation.network.playing import BOTH, HOSTS, abstaining
from evaluation.network.section import details, section
from evaluation.replay import Replay
from evaluation.run import _ASKED
from gpuvigil.model import Finding, Subject, Transition
from simulator.fabric.cabling import CABLES
from simulator.fleet import FleetSettings, build
from simulator.fleet.topology import NODES_PER_POD
from tests.analyzer.scene import NOON, incident, port


@cache
def fleet() -> FleetSettings:
    return fleet_of(21002)


@pytest.mark.slow
def test_a_fleet_has_each_kind_and_no_two_at_one_place() -> None:
    orders = fleet().faults
    kinds = Counter(it.kind for it in orders)
    assert set(kinds) == {kind for them in GROUPS.values() for kind in them}
    links = [it for it in orders if it.kind in OF_LINKS]
    assert len({it.node for it in links}) == len(links)
    assert max(it.node for it in links) < NODES_PER_POD
    assert all(it.node >= NODES_PER_POD for it in orders if it.kind in OF_LEAVES)
    uplinks = [it.uplink for it in orders if it.uplink is not None]
    assert len(set(uplinks)) == len(uplinks)
    [lost] = [it.spine for it in orders if it.spine is not None]
    assert all(uplink // CABLES != lost for uplink in uplinks)


@pytest.mark.slow
def test_what_a_job_has_to_feel_is_in_one_and_nothing_is_hidden() -> None:
    played = build(fleet())
    assert not any(it.hidden for it in played.truths())
    taken = {it.fault: it.pace_lost for it in played.truths()}
    assert {kind for kind in OF_LINKS if taken[kind]} == set(FELT)


SWITCHES = [
    Subject(cluster="simulated", node=name)
    for name in ("leaf-01-0", *(f"spine-{n}" for n in range(1, 5)))
]


@pytest.mark.medium
def test_an_analyzer_that_hears_hosts_alone_hears_no_switch() -> None:
    settings = FleetSettings(
        seed=11, nodes=2, days=0.2 / 24, gpus_per_node=1, life=False, switches=True, demand=0.1
    )
    known: dict[bool, set[str]] = {}
    for switches in (False, True):
        seen = known[switches] = set[str]()

        def look(window: Window, seen: set[str] = seen) -> list[Finding]:
            seen.update(window.switches)
            return []

        looks = replace(_ASKED, find=look)
        replay = Replay(None, (looks,), timedelta(minutes=30), switches=switches)
        for block in build(settings).blocks(block_seconds=720.0):
            replay.feed(block)
    assert known == {False: set(), True: {it.key for it in SWITCHES}}


def fault(
    kind: str, seconds: float | None, one: bool = True, severity: bool = True, lost: float = 0.0
) -> dict[str, Any]:
    found = seconds is not None
    return {
        "id": f"{kind} 1",
        "kind": kind,
        "lost": lost,
        "seconds": seconds,
        "cause": found,
        "place": found,
        "abstained": kind == "lossy path",
        "severity": found and severity,
        "one": found and one,
        "incidents": int(found),
    }


def message(verdict: str, truth: str | None = None, as_grave: bool = True) -> dict[str, Any]:
    said = {"title": "t", "subject": "c/n", "at": "now", "verdict": verdict, "truth": truth}
    return {**said, "as_grave": as_grave}


def played() -> dict[str, Any]:
    lossy = fault("lossy path", 70.0, severity=False, lost=0.1), fault("slow link", None, lost=0.09)
    hosts = {"faults": [*lossy, fault("bad uplink", None)], "messages": []}
    both = {
        "faults": [fault("bad cable", 60.0, one=False), fault("bad uplink", 90.0)],
        "messages": [
            message("right", "bad cable 1", as_grave=False),
            message("symptom"),
            message("false", as_grave=False),
        ],
    }
    return {"seed": 7, "roce": True, "node_days": 10.0, "cpu_seconds": 1, HOSTS: hosts, BOTH: both}


RESULT = {"command": "c", "commit": "0" * 40, "fleet": "f", "judge": "j", "fleets": [played()]}


def test_the_section_sets_both_beside_each_other() -> None:
    lines = list(section(RESULT))
    rows = {
        tuple(cell.strip() for cell in line.split("|")[1:3]): line
        for line in lines
        if line.startswith("| ")
    }
    assert "0.00 (0.00 to 0.79, 0 of 1)" in rows["between switches", HOSTS]
    assert "1.00 (0.21 to 1.00, 1 of 1)" in rows["between switches", BOTH]
    told = [cell.split()[0] for cell in rows["a host's link", BOTH].split("|")[3:-1]]
    assert told == ["1.00", "-", "1.00", "1.00", "1.00", "0.00", "0.00", "60"]
    # Of two one was found, and it alone is costly; its element is right, its severity is not.
    told = [cell.split()[0] for cell in rows["a host's link", HOSTS].split("|")[3:-1]]
    assert told == ["0.50", "1.00", "0.50", "1.00", "0.00", "0.50", "1.00", "70"]
    assert rows["a leaf", HOSTS].count(" - ") == 8
    # What follows from a fault that is there is no wrong message.
    precision = "| 0.67 (0.21 to 0.94, 2 of 3) | 0.33 (0.06 to 0.79, 1 of 3) | 0.10 (1) |"
    assert precision in rows[BOTH, "3"]
    assert any("bad uplink 0 of 1 and 1 of 1" in line for line in lines)


def test_an_incident_abstains_that_says_at_last_what_nobody_can_see() -> None:
    known = incident("port_congested", port(), evidence=(NOT_OBSERVABLE,))
    step = Transition(
        incident="a",
        number=1,
        from_state="suspect",
        to_state="open",
        signal="seen",
        at=NOON,
        reason="seen again",
        subject=port(),
        snapshot=known.to_record().to_json(),
    )
    later = replace(step, number=2, snapshot=replace(known, evidence=()).to_record().to_json())
    assert abstaining([step]) == {"a"}
    assert abstaining([later, step]) == set()


def test_what_a_play_of_before_did_not_ask_for_is_not_measured() -> None:
    fleets = [played()]
    for name in (HOSTS, BOTH):
        for it in (*fleets[0][name]["faults"], *fleets[0][name]["messages"]):
            for what in ("lost", "abstained", "severity", "as_grave"):
                it.pop(what, None)
    rows = [line for line in section({**RESULT, "fleets": fleets}) if "| hosts " in line]
    assert [line.count(" - |") for line in rows[:2]] == [3, 3]


def test_who_tunes_reads_what_was_missed_doubled_or_wrong() -> None:
    lines = "\n".join(details([played()]))
    assert lines.count("bad uplink 1") == 1
    assert lines.count("lossy path 1") == 1
    assert lines.count("'id': 'bad cable 1'") == 1
    assert lines.count("WRONG") == 1
