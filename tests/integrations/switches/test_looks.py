"""One look after another at switches whose ports have names: what stays, what goes, and what is kept."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import pairwise

import pytest

from gpuvigil.model import Record, Switch, SwitchPort
from integrations.fabric.seen import SeenPort, SeenSwitch
from integrations.fabric.switches import after_look, worth_telling
from integrations.switches.answers import together, told

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
    return together([told(NEIGHBOURS, said)], {})


def test_a_cable_that_is_down_keeps_its_other_end_until_that_is_plugged_in_elsewhere() -> None:
    first = after_look({}, cabled("s1"), "c", NOON)
    lost = after_look(first, cabled("s1", 2), "c", NOON + MINUTE)
    assert (ports(lost)["e1"].up, ports(lost)["e1"].peer_label) == (False, "s1")
    assert after_look(lost, cabled("s1", 2), "c", NOON + 2 * MINUTE)["leaf1"].ports
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
    assert set(ports(after_look(lost, beside, "c", NOON + 2 * MINUTE))) == {"e1", "e2"}
    moved = replace(other, peer_port_name="s1")
    now = {**more, "leaf1": replace(more["leaf1"], ports={**more["leaf1"].ports, 2: moved})}
    assert set(ports(after_look(lost, now, "c", NOON + 2 * MINUTE))) == {"e2"}


def counting(
    before: Mapping[str, Switch], minute: float, **counters: int | None
) -> dict[str, Switch]:
    port = SeenPort(up=True, name="e1", counters={"symbol_errors": None, **counters})
    found = {"leaf1": SeenSwitch(guid="leaf1", ports={1: port})}
    return after_look(before, found, "c", NOON + minute * MINUTE)


def test_what_a_busy_port_counts_at_every_look_is_kept_every_few_minutes() -> None:
    now: dict[str, Switch] = {}
    for minute in range(60):
        now = counting(now, minute, receive_errors=0, transmit_discards=100 * minute)
        assert ports(now)["e1"].counts[-1].transmit_discards == 100 * minute
    counts = ports(now)["e1"].counts
    assert len(counts) <= 17
    assert all(later.at - it.at <= 5 * MINUTE for it, later in pairwise(counts))
    # An error keeps the moment at which it came.
    worse = counting(now, 60, receive_errors=1, transmit_discards=6000)
    after = counting(worse, 61, receive_errors=1, transmit_discards=6100)
    first = next(it for it in ports(after)["e1"].counts if it.receive_errors)
    assert first.at == NOON + 60 * MINUTE


def test_a_record_says_all_of_a_switch_and_what_is_not_measured() -> None:
    switches = counting({}, 0, receive_errors=3, transmit_discards=None)
    (switch,) = worth_telling({}, switches)
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
    assert old.ports[0].label == "3"
