"""What Prometheus answers of switches, what becomes of it, and what is not said of them."""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuvigil.clock import ManualClock
from gpuvigil.config import SwitchesSettings
from gpuvigil.errors import ConfigError
from gpuvigil.model import ErrorCount, Record, Switch, SwitchPort
from integrations.fabric.seen import NotReadError, SeenPort, SeenSwitch
from integrations.fabric.switches import after_look, worth_telling
from integrations.fabric.watch import Watch
from integrations.switches.answers import Sample, Told, together, told
from integrations.switches.mapping import SwitchMapping, load, parse
from integrations.switches.prometheus import Prometheus, samples
from integrations.switches.switches_command import log, look
from tests.sources import ROOT

NOON = datetime(2026, 11, 27, 12, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
SNMP = load(ROOT / "packaging/switches/snmp_exporter.toml")
GNMIC = load(ROOT / "packaging/switches/gnmic.toml")
UFM = load(ROOT / "packaging/switches/ufm.toml")
NEIGHBOURS = parse(
    """
switch = "s"
port = "p"
[state]
query = "q"
up = [1]
down = [2]
[neighbour]
query = "n"
system = "sys"
port = "pid"
""",
    "f",
)


def snmp(port: str, value: float | str, switch: str = "leaf1") -> Sample:
    return Sample(labels={"instance": switch, "ifName": port, "ifIndex": "1"}, value=str(value))


def seen(mapping: SwitchMapping = SNMP, **answers: Sequence[Sample]) -> dict[str, SeenSwitch]:
    """Of one mapping; a table that is not named has no series."""
    whole = {name: answers.get(name, ()) for name in mapping.tables}
    return together([told(mapping, whole)], {})


def only(found: Mapping[str, SeenSwitch]) -> SeenPort:
    ((port,),) = ([*it.ports.values()] for it in found.values())
    return port


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

    def called(**names: str) -> dict[str, SeenSwitch]:
        said = [
            Sample(labels={"instance": f"{at}:161", "sysName": name}, value="1")
            for at, name in names.items()
        ]
        return seen(named, state=[snmp("e1", 1, "a"), snmp("e1", 1, "b:161")], name=said)

    assert {name: it.guid for name, it in called(a="leaf1").items()} == {"leaf1": "a", "b": "b"}
    # Two that are called alike are told apart.
    assert set(called(a="leaf1", b="leaf1")) == {"leaf1 a", "leaf1 b"}


def heard(switch: str, port: str, system: str, far: str) -> Sample:
    return Sample(labels={"s": switch, "p": port, "sys": system, "pid": far}, value="1")


def state(switch: str, port: str, value: int = 1) -> Sample:
    return Sample(labels={"s": switch, "p": port}, value=str(value))


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


def test_a_port_keeps_its_number_and_of_a_switch_told_twice_the_first_counts() -> None:
    first = seen(state=[snmp("Ethernet1/2", 1), snmp("Ethernet1/10", 1)])
    assert {it.name: n for n, it in first["leaf1"].ports.items()} == {
        "Ethernet1/2": 1,
        "Ethernet1/10": 2,
    }
    now = after_look({}, first, "c", NOON)
    more = dict.fromkeys(SNMP.tables, ()) | {
        "state": [snmp(f"Ethernet1/{n}", 1) for n in (1, 2, 10)]
    }
    again = together([told(SNMP, more)], now)
    assert {it.name: n for n, it in again["leaf1"].ports.items()} == {
        "Ethernet1/2": 1,
        "Ethernet1/10": 2,
        "Ethernet1/1": 3,
    }
    one = Told(name="leaf1", ports={"e1": SeenPort(up=True, name="e1")}, neighbours={})
    two = replace(one, ports={"e2": SeenPort(up=True, name="e2")})
    assert only(together([{"x": one}, {"x": two}], {})).name == "e1"


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"state": []}, r"\[state\]: Prometheus has no series for 'ifOperStatus and .* scraped"),
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


@contextmanager
def serving(
    body: bytes, status: int = 200, headers: Mapping[str, str] | None = None, drip: float = 0.0
) -> Iterator[tuple[str, list[str]]]:
    """Answers every query alike; `drip`: a byte in so many seconds. Gives its address, and each Authorization."""
    asked: list[str] = []
    over = Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            asked.append(self.headers.get("Authorization", ""))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            for n in range(0, len(body), 1 if drip else len(body)):
                self.wfile.write(body[n : n + 1] if drip else body)
                self.wfile.flush()
                if drip and over.wait(drip):
                    return

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def answer(*result: object) -> bytes:
    whole = {"status": "success", "data": {"resultType": "vector", "result": list(result)}}
    return json.dumps(whole).encode()


UP = {"metric": {"instance": "leaf1", "ifName": "e1"}, "value": [1.0, "1"]}


def ask(url: str, **more: Any) -> dict[str, SeenSwitch]:
    settings = SwitchesSettings(url=url, **{"timeout_seconds": 5.0, **more})
    return look(Prometheus(settings), [SNMP], {})


def test_it_is_asked_with_its_secrets_and_a_compressed_answer_is_read(tmp_path: Path) -> None:
    token, password = tmp_path / "token", tmp_path / "password"
    token.write_text("s3cret\n")
    password.write_text("pass\n")
    packed = gzip.compress(answer(UP))
    with serving(packed, headers={"Content-Encoding": "gzip"}) as (url, asked):
        assert only(ask(url, token_file=token)).up
        assert only(ask(url, user="me", password_file=password)).up
    assert set(asked) == {"Bearer s3cret", "Basic bWU6cGFzcw=="}
    with pytest.raises(ConfigError, match=r"switches\.password_file"):
        Prometheus(SwitchesSettings(url="http://h", user="me"))
    with pytest.raises(ConfigError, match=r"switches's token in .*: No such file"):
        Prometheus(SwitchesSettings(url="http://h", token_file=tmp_path / "no"))
    with pytest.raises(ConfigError, match=r"switches\.url is not set"):
        Prometheus(SwitchesSettings())


def test_a_query_that_fails_is_named_with_what_the_server_says(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    why = b'{"status":"error","errorType":"bad_data","error":"1:3: parse error of s3cret"}'
    with serving(why, 400) as (url, _), pytest.raises(NotReadError) as error:
        ask(url, token_file=token)
    assert "snmp_exporter.toml: [state] 'ifOperStatus" in str(error.value)
    assert "status 400: 1:3: parse error of ***" in str(error.value)
    with serving(b"<html>") as (url, _), pytest.raises(NotReadError, match="not JSON"):
        ask(url)
    with serving(b"[" * 100_000) as (url, _), pytest.raises(NotReadError, match="not JSON"):
        ask(url)
    with pytest.raises(NotReadError, match="does not answer"):
        ask(url)


def test_an_answer_that_is_too_large_or_too_slow_is_given_up() -> None:
    body = answer(UP)
    with serving(body) as (url, _):
        assert only(ask(url, answer_bytes=len(body))).up
        with pytest.raises(NotReadError, match=f"the answer is over {len(body) - 1} bytes"):
            ask(url, answer_bytes=len(body) - 1)
    bomb = gzip.compress(b" " * 10_000_000)
    over, late = r"is over 1000000 bytes", r"does not answer whole within 0\.5 s"
    packed = {"Content-Encoding": "gzip"}
    with serving(bomb, headers=packed) as (url, _), pytest.raises(NotReadError, match=over):
        ask(url, answer_bytes=1_000_000)
    with serving(body, drip=0.05) as (url, _), pytest.raises(NotReadError, match=late):
        ask(url, timeout_seconds=0.5)


def test_what_cannot_be_asked_is_one_line_and_nothing_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records: list[Record] = []
    with serving(answer(UP)) as (url, _):
        looking = partial(look, Prometheus(SwitchesSettings(url=url)), [SNMP])
        watch = Watch(looking, "c", tmp_path / "memory", ManualClock(NOON), log)
        watch.round(records.extend)
    assert [it.subject for it in records] == ["c/leaf1"]
    for _ in range(3):
        watch.round(lambda them: pytest.fail(f"told {them}"))
    assert caplog.text.count("the fabric is not read") == 1


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
