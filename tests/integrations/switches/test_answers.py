"""What Prometheus answers of switches, what becomes of it, and what is not said of them."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuvigil.model import ErrorCount
from integrations.fabric.seen import NotReadError, SeenPort, SeenSwitch
from integrations.fabric.switches import Switches, merged
from integrations.switches.answers import (
    ReportedSwitch,
    Sample,
    missed,
    reported_switches,
    silent,
    together,
)
from integrations.switches.mapping import SwitchMapping, load, parse
from integrations.switches.prometheus import samples
from tests.sources import ROOT

from .said import NEIGHBOURS, heard, only, state

NOON = datetime(2026, 11, 27, 12, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
SNMP = load(ROOT / "packaging/switches/snmp_exporter.toml")
GNMIC = load(ROOT / "packaging/switches/gnmic.toml")
UFM = load(ROOT / "packaging/switches/ufm.toml")


def snmp(port: str, value: float | str, switch: str = "leaf1") -> Sample:
    return Sample(labels={"instance": switch, "ifName": port, "ifIndex": "1"}, value=str(value))


def seen(mapping: SwitchMapping = SNMP, **answers: Sequence[Sample]) -> dict[str, SeenSwitch]:
    """Of one mapping; a table that is not named has no series."""
    whole = {name: answers.get(name, ()) for name in mapping.tables}
    return together([reported_switches(mapping, whole)], {})


def test_what_snmp_exporter_says_is_a_port_in_our_units() -> None:
    port = only(
        seen(
            state=[snmp("Ethernet1/1", 1)],
            admin=[snmp("Ethernet1/1", 1)],
            speed=[snmp("Ethernet1/1", 400_000)],
            receive_errors=[snmp("Ethernet1/1", 7)],
        )
    )
    assert (port.name, port.up, port.physical_state) == ("Ethernet1/1", True, "")
    assert port.bits_per_second == 400_000_000_000
    assert port.counters is not None
    # What Prometheus does not have is not measured, and never 0.
    assert dict(port.counters) == {
        **dict.fromkeys(ErrorCount.__dataclass_fields__.keys() - {"at"}),
        "receive_errors": 7,
    }
    assert only(seen(state=[snmp("e1", 1)])).counters is None


@pytest.mark.parametrize(
    ("values", "up"),
    [((1,), True), ((2,), False), ((7,), False), ((5,), None), ((1, 2), None), (("NaN",), None)],
)
def test_a_state_that_is_neither_or_both_is_not_known(
    values: Sequence[float | str], up: bool | None
) -> None:
    found = seen(state=[snmp("known", 1), *(snmp("e1", it) for it in values)])
    states = {port.name: port.up for port in found["leaf1"].ports.values()}
    assert states.get("e1") is up


def test_a_port_that_somebody_switched_off_is_disabled() -> None:
    port = only(seen(state=[snmp("e1", 2)], admin=[snmp("e1", 2)]))
    assert (port.up, port.physical_state) == (False, "Disabled")


@pytest.mark.parametrize(
    ("values", "bits"),
    [
        ([0], None),
        (["NaN"], None),
        (["-1"], None),
        (["+Inf"], None),
        ([1, 2], None),
        ([4, 4], 4_000_000),
    ],
)
def test_a_speed_that_is_none_or_two_is_not_measured(values: list[Any], bits: int | None) -> None:
    port = only(seen(state=[snmp("e1", 1)], speed=[snmp("e1", it) for it in values]))
    assert port.bits_per_second == bits


def test_of_two_that_count_one_port_the_larger_counts() -> None:
    errors = [snmp("e1", 7), snmp("e1", 9), snmp("e1", "NaN"), snmp("e1", 1e30)]
    port = only(seen(state=[snmp("e1", 1)], receive_errors=errors))
    assert port.counters is not None
    assert port.counters["receive_errors"] == 9


def gnmi(name: str, text: str, switch: str = "leaf1:57400", **more: str) -> Sample:
    labels = {"source": switch, "interface_name": "Ethernet1", name: text, **more}
    return Sample(labels=labels, value="1")


def test_what_gnmic_says_in_texts_is_the_same() -> None:
    port = only(
        seen(
            GNMIC,
            state=[gnmi("oper_status", "UP")],
            admin=[gnmi("admin_status", "UP")],
            speed=[gnmi("port_speed", "openconfig-if-ethernet:SPEED_400GB")],
            neighbour=[gnmi("system_name", "host1.example.org", port_id="eth 0")],
        )
    )
    assert (port.up, port.physical_state, port.peer) == (True, "", "host1 eth_0")
    assert port.bits_per_second == 400_000_000_000
    # A state that has just changed is told in both words until the first has expired.
    both = [gnmi("oper_status", "UP"), gnmi("oper_status", "DOWN")]
    other = gnmi("oper_status", "DOWN", "leaf2")
    assert seen(GNMIC, state=[*both, other])["leaf1"].ports == {}


def test_ufm_goes_by_guids_and_numbers() -> None:
    def it(value: float) -> Sample:
        labels = {"node_guid": "2c90300f172a0", "port_guid": "2c90300f172a2", "port_num": "12"}
        return Sample(labels=labels, value=str(value))

    found = seen(UFM, state=[it(5)], admin=[it(5)], symbol_errors=[it(3)])
    assert list(found["2c90300f172a0"].ports) == [12]
    assert only(found).name == "12"
    assert only(seen(UFM, state=[it(3)], admin=[it(3)])).physical_state == "Disabled"


def test_switches_go_by_the_name_that_they_give_themselves() -> None:
    text = (ROOT / "packaging/switches/snmp_exporter.toml").read_text()
    named = parse(text + '[name]\nquery = "sysName"\nlabel = "sysName"\n', "f")

    def called(known: Switches | None = None, /, **names: str) -> dict[str, SeenSwitch]:
        said = [
            Sample(labels={"instance": f"{at}:161", "sysName": name}, value="1")
            for at, name in names.items()
        ]
        states = [snmp("e1", 1, "a"), snmp("e1", 1, "b:161")]
        whole = {**dict.fromkeys(named.tables, ()), "state": states, "name": said}
        return together([reported_switches(named, whole)], known or {})

    assert {name: it.guid for name, it in called(a="leaf1").items()} == {"leaf1": "a", "b": "b"}
    # Two that are called alike are told apart.
    assert set(called(a="leaf1", b="leaf1")) == {"leaf1 a", "leaf1 b"}
    # Whose name has no series just now is called as before.
    for names in ({"a": "leaf1"}, {"a": "leaf1", "b": "leaf1"}, {"a": "leaf1", "b": "leaf2"}):
        before = merged({}, called(**names), "c", NOON)
        for left in ({}, {"a": "leaf1"}):
            now = called(before, **left)
            assert {it.guid: name for name, it in now.items()} == {
                guid: it.subject.node for guid, it in before.items()
            }


def peers(*said: Sample) -> dict[str, tuple[str, str, str, bool]]:
    states = [
        state("leaf1", "e1"),
        state("leaf1", "e2"),
        state("10.0.0.9", "e1"),
        state("spine1", "s1"),
    ]
    found = seen(NEIGHBOURS, state=states, neighbour=said)
    return {
        f"{name} {port.name}": (port.peer, port.peer_guid, port.peer_port_name, port.at_switch)
        for name, it in found.items()
        for port in it.ports.values()
        if port.peer
    }


def test_a_cable_between_switches_is_known_at_both_ends_where_one_knows_it() -> None:
    both = {
        "leaf1 e1": ("spine1", "spine1", "s1", True),
        "spine1 s1": ("leaf1", "leaf1", "e1", True),
    }
    assert peers(heard("leaf1", "e1", "Spine1.example.org", "s1")) == both
    assert peers(heard("leaf1", "e1", "spine1", "s1"), heard("spine1", "s1", "leaf1", "e1")) == both
    # An address is no name with a domain, and two neighbours at one port are none.
    assert peers(heard("leaf1", "e1", "10.0.0.8", "x")) == {
        "leaf1 e1": ("10.0.0.8 x", "", "", False)
    }
    assert peers(heard("leaf1", "e1", "a", "x"), heard("leaf1", "e1", "b", "x")) == {}
    assert peers(heard("leaf1", "e9", "a", "x")) == {}


@pytest.mark.parametrize(
    ("heard_name", "far"),
    [
        ("leaf1.dc1", ("leaf1.dc1", True)),
        ("LEAF1.dc2", ("leaf1.dc2", True)),
        ("leaf1", ("", False)),
        ("leaf1.dc3", ("", False)),
        ("leaf2", ("leaf2.dc1", True)),
        ("leaf2.example.org", ("leaf2.dc1", True)),
        ("leaf3", ("leaf3 s1", False)),
    ],
)
def test_a_short_name_that_two_switches_have_names_neither(
    heard_name: str, far: tuple[str, bool]
) -> None:
    names = ("spine1", "leaf1.dc1", "leaf1.dc2", "leaf2.dc1")
    states = [state(name, "e1") for name in names]
    found = seen(NEIGHBOURS, state=states, neighbour=[heard("spine1", "e1", heard_name, "s1")])
    (port,) = found["spine1"].ports.values()
    assert (port.peer, port.at_switch) == far


def test_a_cable_to_a_switch_that_is_not_told_of_just_now_is_still_one_between_switches() -> None:
    states = [state("leaf1", "e1"), state("spine1", "s1")]
    said = {"state": states, "neighbour": [heard("leaf1", "e1", "spine1.example.org", "s1")]}
    known = merged({}, together([reported_switches(NEIGHBOURS, said)], {}), "c", NOON)
    port = only(together([reported_switches(NEIGHBOURS, {**said, "state": states[:1]})], known))
    assert (port.peer, port.peer_guid, port.at_switch) == ("spine1", "spine1", True)


def test_a_port_keeps_its_number_and_of_a_switch_told_twice_the_first_counts() -> None:
    first = seen(state=[snmp("Ethernet1/2", 1), snmp("Ethernet1/10", 1)])
    assert {it.name: n for n, it in first["leaf1"].ports.items()} == {
        "Ethernet1/2": 1,
        "Ethernet1/10": 2,
    }
    now = merged({}, first, "c", NOON)
    more = dict.fromkeys(SNMP.tables, ()) | {
        "state": [snmp(f"Ethernet1/{n}", 1) for n in (1, 2, 10)]
    }
    again = together([reported_switches(SNMP, more)], now)
    assert {it.name: n for n, it in again["leaf1"].ports.items()} == {
        "Ethernet1/2": 1,
        "Ethernet1/10": 2,
        "Ethernet1/1": 3,
    }
    one = ReportedSwitch(name="leaf1", ports={"e1": SeenPort(up=True, name="e1")}, neighbours={})
    two = replace(one, ports={"e2": SeenPort(up=True, name="e2")})
    assert only(together([{"x": one}, {"x": two}], {})).name == "e1"


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"state": []}, r"\[state\]: Prometheus has no series for 'ifOperStatus\{.* scraped"),
        (
            {"state": [Sample(labels={"instance": "a", "ifDescr": "x"}, value="1")]},
            r"\[state\]: the answer has no label 'ifName'; its labels are ifDescr, instance",
        ),
        (
            {"state": [Sample(labels={"__name__": "x"}, value="1")]},
            r"\[state\]: the answer has no label 'instance'; its labels are none",
        ),
        ({"state": [snmp("e1", 5)]}, r"\[state\]: no port is up or down; the values are '5'"),
        (
            {"state": [snmp("e1", 1)], "speed": [Sample(labels={"instance": "a"}, value="1")]},
            r"\[speed\]: the answer has no label 'ifName'",
        ),
    ],
)
def test_an_answer_that_says_nothing_is_one_line(
    answers: dict[str, Sequence[Sample]], said: str
) -> None:
    with pytest.raises(NotReadError, match=said):
        seen(SNMP, **answers)


def test_a_series_without_a_port_is_left_out_where_others_have_one() -> None:
    found = seen(state=[Sample(labels={"instance": "leaf1"}, value="1"), snmp("e1", 1)])
    assert only(found).name == "e1"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([], "none of Prometheus' API"),
        ({"data": {"result": 3}}, "none of Prometheus' API"),
        ({"data": {"resultType": "matrix", "result": []}}, r"gives a matrix, .* without \[5m\]"),
        ({"data": {"resultType": "scalar", "result": [1, "2"]}}, "gives a scalar"),
        ({"data": {"resultType": "vector", "result": [3]}}, "cannot be read"),
        (
            {"data": {"resultType": "vector", "result": [{"metric": 3, "value": [1, "2"]}]}},
            "cannot be",
        ),
        ({"data": {"resultType": "vector", "result": [{"metric": {}, "value": [1]}]}}, "cannot be"),
    ],
)
def test_an_answer_of_another_shape_is_refused(answer: object, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        samples(answer)


@given(
    st.recursive(
        st.none() | st.floats() | st.text(),
        lambda it: (
            st.lists(it)
            | st.dictionaries(
                st.sampled_from(["data", "result", "resultType", "metric", "value"]), it
            )
        ),
    )
)
def test_whatever_is_answered_is_read_or_refused(answer: object) -> None:
    with suppress(TypeError, ValueError):
        samples(answer)


def test_an_exporter_of_several_switches_that_is_silent_is_no_lost_switches() -> None:
    def known(**exporters: str) -> dict[str, frozenset[str]]:
        return silent({"a": "g1", "b": "g1", "c": "g2", "d": "d", "e": ""}, exporters)

    everybody = {"a": "g1", "b": "g1", "c": "g2", "d": "d", "e": ""}
    assert known(**everybody) == {}
    assert known(c="g2", d="d", e="") == {"g1": frozenset("ab")}
    # One of two, one that is its own exporter's only switch, and those that another exporter has by now.
    assert known(**{**everybody, "a": "g1"}) == {}
    assert known(b="g1", c="g2") == {}
    assert known(a="g1", b="g1") == {}
    assert known(a="g3", b="g3", c="g2", d="d") == {}


@pytest.mark.parametrize(("seconds", "waited_for"), [(179.9, True), (180.0, False)])
def test_a_switch_without_series_is_waited_for_as_long_as_a_scrape_may_fail(
    seconds: float, waited_for: bool
) -> None:
    before = merged({}, seen(state=[snmp("e1", 1)]), "c", NOON)
    at, after = NOON + timedelta(seconds=seconds), timedelta(seconds=180)
    assert missed(before, {"leaf1"}, after, at) == frozenset()
    assert missed(before, (), after, at) == ({"leaf1"} if waited_for else frozenset())
    # One that is lost already stays lost.
    lost = {guid: replace(it, lost_at=NOON) for guid, it in before.items()}
    assert missed(lost, (), after, at) == frozenset()
