"""One look after another at switches whose ports have names: what stays, what goes, and what is kept."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import pairwise

import pytest

from gpuvigil.model import Record, Subject, Switch, SwitchPort
from integrations.fabric.seen import SeenPort, SeenSwitch
from integrations.fabric.switches import changed_switches, merged
from integrations.fabric.watch import at_once
from integrations.switches.answers import reported_switches, together

from .said import NEIGHBOURS, heard, state

NOON = datetime(2026, 11, 27, 12, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)


def ports(switches: Mapping[str, Switch], guid: str = "leaf1") -> Mapping[str, SwitchPort]:
    return {port.name: port for port in switches[guid].ports}


def cabled(far: str, value: int = 1) -> dict[str, SeenSwitch]:
    said = {
        "state": [
            state("leaf1", "e1", value),
            state("leaf1", "e2"),
            state("spine1", far),
            state("spine1", "s9"),
        ],
        "neighbour": [heard("leaf1", "e1", "spine1", far)] if value == 1 else [],
    }
    return together([reported_switches(NEIGHBOURS, said)], {})


def test_a_cable_that_is_down_keeps_its_other_end_until_that_is_plugged_in_elsewhere() -> None:
    first = merged({}, cabled("s1"), "c", NOON)
    lost = merged(first, cabled("s1", 2), "c", NOON + MINUTE)
    assert (ports(lost)["e1"].up, ports(lost)["e1"].peer_id) == (False, "s1")
    assert merged(lost, cabled("s1", 2), "c", NOON + 2 * MINUTE)["leaf1"].ports
    # Another cable between the same two does not stand in for it.
    more = cabled("s1", 2)
    other = replace(
        more["leaf1"].ports[2],
        peer="spine1",
        peer_guid="spine1",
        peer_port_name="s9",
        at_switch=True,
    )
    beside = {**more, "leaf1": replace(more["leaf1"], ports={**more["leaf1"].ports, 2: other})}
    assert set(ports(merged(lost, beside, "c", NOON + 2 * MINUTE))) == {"e1", "e2"}
    moved = replace(other, peer_port_name="s1")
    now = {**more, "leaf1": replace(more["leaf1"], ports={**more["leaf1"].ports, 2: moved})}
    assert set(ports(merged(lost, now, "c", NOON + 2 * MINUTE))) == {"e2"}


def counting(
    before: Mapping[str, Switch], minute: float, **counters: int | None
) -> dict[str, Switch]:
    port = SeenPort(up=True, name="e1", counters={"symbol_errors": None, **counters})
    found = {"leaf1": SeenSwitch(guid="leaf1", ports={1: port})}
    return merged(before, found, "c", NOON + minute * MINUTE)


def test_of_a_busy_ports_traffic_only_the_last_minutes_are_kept() -> None:
    now: dict[str, Switch] = {}
    for minute in range(121):
        now = counting(now, minute, receive_errors=0, transmit_discards=100 * minute)
        assert ports(now)["e1"].counts[-1].transmit_discards == 100 * minute
        assert len(ports(now)["e1"].counts) <= 5
    counts = ports(now)["e1"].counts
    assert all(later.at - it.at <= 5 * MINUTE for it, later in pairwise(counts))
    # Growth is judged over ten minutes: one count is from before them.
    assert 110 * MINUTE >= counts[0].at - NOON > 105 * MINUTE
    # An error keeps the moment at which it came, and what was before it, for an hour.
    worse = counting(now, 121, receive_errors=1, transmit_discards=12_100)
    for minute in range(122, 181):
        worse = counting(worse, minute, receive_errors=1, transmit_discards=100 * minute)
        counts = ports(worse)["e1"].counts
        assert next(it.at for it in counts if it.receive_errors) == NOON + 121 * MINUTE
        assert counts[0].receive_errors == 0
        assert len(counts) <= 7
    later = counting(worse, 194, receive_errors=1, transmit_discards=1)
    assert all(it.receive_errors for it in ports(later)["e1"].counts)


def test_traffic_alone_is_told_every_five_minutes_and_an_error_at_once() -> None:
    now: dict[str, Switch] = {}
    for minute in range(31):
        now = counting(now, minute, receive_errors=0, pause_frames_sent=minute)
    (first,) = changed_switches({}, now)
    reported = {first.guid: first}
    for later, is_told in ((31.0, False), (34.9, False), (35.0, True)):
        busy = counting(now, later, receive_errors=0, pause_frames_sent=round(100 * later))
        assert bool(changed_switches(reported, busy)) is is_told
    error = counting(now, 31, receive_errors=1, pause_frames_sent=31)
    assert changed_switches(reported, error)
    # What has just changed is told with each look: for ten minutes.
    for minute, is_told in ((32, True), (41, True), (42, False)):
        after = counting(error, minute, receive_errors=1, pause_frames_sent=31)
        known = {guid: replace(it, at=it.at - MINUTE) for guid, it in after.items()}
        assert bool(changed_switches(known, after)) is is_told
        assert not changed_switches(after, after)  # that of which nothing new is known


def sized(name: str, size: int) -> Record:
    """A record of so many bytes with the end of its line."""
    subject = Subject(cluster="c", node=name)
    bare = Switch(subject=subject, at=NOON, guid="").to_record()
    short = len(json.dumps(bare.to_json())) + 1
    return replace(bare, body={**bare.body, "guid": "x" * (size - short)})


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([500, 500], [2]),
        ([500, 501], [1, 1]),
        ([2000, 400, 400, 400], [1, 2, 1]),
        ([300] * 4, [3, 1]),
        ([], []),
    ],
)
def test_a_body_is_cut_by_bytes_and_by_number(sizes: list[int], parts: list[int]) -> None:
    records = [sized(str(n), size) for n, size in enumerate(sizes)]
    cut = list(at_once(records, most=3, most_bytes=1000))
    assert [len(it) for it in cut] == parts
    assert [record for it in cut for record in it] == records


def test_a_record_says_all_of_a_switch_and_what_is_not_measured() -> None:
    switches = counting({}, 0, receive_errors=3, transmit_discards=None)
    (switch,) = changed_switches({}, switches)
    record = switch.to_record()
    again = Switch.from_record(Record.from_json(json.loads(json.dumps(record.to_json()))))
    assert again == switch
    assert ports(switches)["e1"].counts[0].symbol_errors is None
    (port,) = record.body["ports"]
    for name in ("name", "peer_port_name"):
        with pytest.raises(TypeError):
            Switch.from_record(replace(record, body={**record.body, "ports": [{**port, name: 3}]}))


def test_a_record_of_an_older_reader_has_no_names() -> None:
    port = {"number": 3, "up": True, "since": "2026-11-27T12:00:00Z", "counts": []}
    old = Switch.from_record(
        Record.from_json(
            {
                **counting({}, 0)["leaf1"].to_record().to_json(),
                "body": {"guid": "00", "lost_at": None, "ports": [port]},
            }
        )
    )
    assert old.ports[0].id == "3"
