"""What the fabric's tools print, what becomes of it from look to look, and what is told of it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuvigil.clock import ManualClock
from gpuvigil.model import ErrorCount, Record, RecordKind, Subject, Switch, SwitchPort
from integrations.fabric.seen import SeenPort, SeenSwitch
from integrations.fabric.switches import changed_switches, is_cut_off, merged
from integrations.fabric.watch import Watch
from integrations.infiniband.infiniband_command import log, read_switches
from integrations.infiniband.printed import read
from integrations.infiniband.tools import Fabric

NOON = datetime(2026, 11, 27, 12, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
LINKS = """\
0x0000000010000001 "                         leaf1"      2    1[  ] ==( 4X        53.125 Gbps Active/  LinkUp)==>  0x0000000030000001      6    1[  ] "host1 mlx5_0" (Could be 12X )
0x0000000010000001 "                         leaf1"      2    2[  ] ==(                Down/ Polling)==>             [  ] "" ( )
0x0000000010000001 "                         leaf1"      2   41[  ] ==( 4X        106.25 Gbps Active/  LinkUp)==>  0x0000000020000001      3   12[  ] "MF0;spine-1:MQM9700/U1" ( )
0x0000000020000001 "        MF0;spine-1:MQM9700/U1"      3   12[  ] ==( 1X        106.25 Gbps Active/  LinkUp)==>  0x0000000010000001      2   41[  ] "leaf1" ( )
0x0000000020000001 "        MF0;spine-1:MQM9700/U1"      3   13[  ] ==( 4X           2.5 Gbps   Init/  LinkUp)==>  0x0000000010000001      2   42[  ] "leaf1" ( )
"""
ERRORS = """\
Errors for 0x10000001 "leaf1"
   GUID 0x10000001 port ALL: [SymbolErrorCounter == 99]
   GUID 0x10000001 port 41: [SymbolErrorCounter == 12] [PortRcvErrors == 3] [LinkErrorRecoveryCounter == 1] [PortXmitDiscards == 5]

## Summary: 2 nodes checked, 1 bad nodes found
"""


def test_links_and_errors_are_read_as_the_tools_print_them() -> None:
    found = read(LINKS, ERRORS)
    assert set(found) == {"leaf1", "spine-1"}
    leaf = found["leaf1"].ports
    assert (leaf[1].peer, leaf[1].peer_port, leaf[1].at_switch) == ("host1 mlx5_0", 1, False)
    assert leaf[1].bits_per_second == 200_000_000_000
    assert leaf[2] == SeenPort(
        up=False, physical_state="Polling", counters={"transmit_discards": 0}
    )
    assert (leaf[41].peer, leaf[41].at_switch, leaf[41].lanes) == ("spine-1", True, 4)
    assert leaf[41].bits_per_second == 400_000_000_000
    assert leaf[41].counters == {
        "symbol_errors": 12,
        "receive_errors": 3,
        "link_recoveries": 1,
        "transmit_discards": 5,
    }
    spine = found["spine-1"].ports
    assert (spine[12].lanes, spine[12].bits_per_second) == (1, 100_000_000_000)
    assert not spine[13].up or spine[13].physical_state == "LinkUp"
    # What was not asked has not counted nothing.
    for said in (ERRORS.replace("2 nodes", "1 nodes"), f"{ERRORS}x query failed on spine-1, y", ""):
        asked = read(LINKS, said)
        assert asked["leaf1"].ports[1].counters is None
        assert (asked["leaf1"].ports[41].counters is None) is (said == "")
    with pytest.raises(ValueError, match="is no line of a link"):
        read('0x0000000010000001 "leaf1" ==> nowhere', "")


@pytest.mark.parametrize(("dropped", "known"), [(65534, 65534), (65535, None)])
def test_a_count_of_drops_that_is_full_says_no_more(dropped: int, known: int | None) -> None:
    said = ERRORS.replace("PortXmitDiscards == 5", f"PortXmitDiscards == {dropped}")
    counters = read(LINKS, said)["leaf1"].ports[41].counters
    assert counters is not None
    assert counters["transmit_discards"] == known


def seen(
    up: bool = True, peer: str = "spine1", bits: int = 200, guid: str = "", **counters: int
) -> SeenPort:
    if not up:
        return SeenPort(up=False, physical_state="Polling", counters=counters)
    return SeenPort(
        up=True,
        physical_state="LinkUp",
        peer=peer,
        peer_guid=guid,
        peer_port=1,
        at_switch=True,
        bits_per_second=bits,
        lanes=4,
        counters=counters,
    )


SPINES = {name: SeenSwitch(guid=name, ports={}) for name in ("spine1", "spine2")}


def looked(before: dict[str, Switch], minute: int, *ports: SeenPort) -> dict[str, Switch]:
    found = {"leaf1": SeenSwitch(guid="1", ports=dict(enumerate(ports, 1))), **SPINES}
    return merged(before, found, "c", NOON + minute * MINUTE)


def only_port(switches: dict[str, Switch]) -> SwitchPort:
    (port,) = switches["1"].ports
    return port


def test_a_port_keeps_its_peer_its_best_and_since_when_it_is_as_it_is() -> None:
    first = looked({}, 0, seen(), seen(up=False))
    assert only_port(first).since == NOON  # the second port never had a link
    same = looked(first, 1, seen(), seen(up=False))
    assert only_port(same) == only_port(first)
    down = looked(same, 2, seen(up=False))
    gone = only_port(down)
    assert (gone.up, gone.since, gone.peer) == (False, NOON + 2 * MINUTE, "spine1")
    assert (gone.bits_per_second, gone.best_bits_per_second) == (None, 200)
    assert only_port(looked(down, 3, seen(up=False))) == gone
    slow = only_port(looked(down, 4, seen(bits=50)))
    assert (slow.since, slow.best_bits_per_second) == (NOON + 4 * MINUTE, 200)
    moved = only_port(looked(down, 4, seen(peer="spine2", bits=50)))
    assert moved.best_bits_per_second == 50


def test_a_switch_is_lost_by_its_guid_and_forgotten_after_a_week() -> None:
    first = looked({}, 0, seen())
    other = {"leaf2": SeenSwitch(guid="2", ports={})}
    lost = merged(first, other, "c", NOON + MINUTE)
    assert (lost["1"].lost_at, lost["1"].ports) == (NOON + MINUTE, first["1"].ports)
    week = 7 * 1440
    later = merged(lost, other, "c", NOON + week * MINUTE)
    assert later["1"].lost_at == NOON + MINUTE
    after = merged(later, other, "c", NOON + (week + 1) * MINUTE)
    assert "1" not in after
    (last,) = [it for it in changed_switches(later, after) if it.guid == "1"]
    assert (last.lost_at, last.ports, last.at) == (None, (), NOON + (week + 1) * MINUTE)
    # One that was given another name is not lost.
    renamed = {"leaf-a": SeenSwitch(guid="1", ports={})}
    again = merged(first, renamed, "c", NOON + MINUTE)
    assert (again["1"].subject.node, again["1"].lost_at) == ("leaf-a", None)
    over, now = (it for it in changed_switches(first, again) if it.guid == "1")
    assert (over.subject.node, over.ports, now.subject.node) == ("leaf1", (), "leaf-a")


@pytest.mark.parametrize(("answer", "cut_off"), [(0, True), (1, True), (2, False), (4, False)])
def test_where_most_switches_are_gone_at_once_the_reader_doubts_itself(
    answer: int, cut_off: bool
) -> None:
    subject = Subject(cluster="c", node="s")
    before = {str(n): Switch(subject=subject, at=NOON, guid=str(n)) for n in range(4)}
    found = {str(n): SeenSwitch(guid=str(n), ports={}) for n in range(answer)}
    assert is_cut_off(before, found) is cut_off


@given(st.lists(st.tuples(st.integers(1, 10), st.integers(0, 3)), min_size=1, max_size=60))
def test_counts_of_the_last_hour_are_kept_and_the_one_before_them(
    looks: list[tuple[int, int]],
) -> None:
    switches: dict[str, Switch] = {}
    minute = total = 0
    history: list[tuple[int, int]] = []
    for pause, more in looks:
        minute, total = minute + pause, total + more
        history.append((minute, total))
        switches = looked(switches, minute, seen(symbol_errors=total))
        counts = only_port(switches).counts
        assert counts[-1].symbol_errors == total
        start = max(minute - 60, history[0][0])
        then = [value for at, value in history if at <= start][-1]
        known = [it.symbol_errors for it in counts if it.at <= NOON + start * MINUTE][-1]
        assert known == then
        assert len([it for it in counts if it.at < NOON + (minute - 60) * MINUTE]) <= 1


def test_what_was_not_read_leaves_the_counts_as_they_were() -> None:
    first = looked({}, 0, seen(symbol_errors=9))
    unread = SeenPort(up=True, physical_state="LinkUp", peer="spine1", peer_port=1)
    assert only_port(looked(first, 1, unread)).counts == only_port(first).counts
    assert only_port(looked({}, 0, unread)).counts == ()


def test_counters_that_were_cleared_are_kept_as_they_are() -> None:
    first = looked({}, 0, seen(symbol_errors=9))
    counts = only_port(looked(first, 1, seen(symbol_errors=2))).counts
    assert [it.symbol_errors for it in counts] == [9, 2]


def test_what_is_as_it_was_is_told_every_five_minutes_and_what_is_young_each_time() -> None:
    def told(before: dict[str, Switch], now: dict[str, Switch]) -> bool:
        return "1" in {it.guid for it in changed_switches(before, now)}

    first = looked({}, 0, seen())
    assert told({}, first)
    old = looked(looked(first, 6, seen()), 11, seen())
    for minute, is_told in ((12, False), (15, False), (16, True)):
        assert told(old, looked(old, minute, seen())) is is_told
    down = looked(old, 12, seen(up=False))
    for minute in (13, 22):
        assert told(down, looked(down, minute, seen(up=False)))
    known = looked(looked(down, 18, seen(up=False)), 23, seen(up=False))
    assert not told(known, looked(known, 24, seen(up=False)))


def test_a_cable_that_was_moved_leaves_nothing_behind() -> None:
    host = replace(seen(peer="host1 mlx5_0", guid="h1"), at_switch=False)
    first = looked({}, 0, host, seen())
    moved = looked(first, 1, seen(up=False), seen(), host)
    assert [port.number for port in moved["1"].ports] == [2, 3]
    # Of a switch that is gone for good nothing hangs on.
    only = {"leaf1": SeenSwitch(guid="1", ports={1: seen(up=False), 2: seen(up=False)})}
    gone = merged({"1": first["1"]}, only, "c", NOON + MINUTE)
    assert [port.number for port in gone["1"].ports] == [1]


@pytest.mark.parametrize(("hours", "kept"), [(23.9, True), (24.0, False)])
def test_a_hosts_port_that_is_down_for_a_day_is_left(hours: float, kept: bool) -> None:
    host = seen(peer="host1 mlx5_0", guid="h1")
    down = looked(looked({}, 0, replace(host, at_switch=False)), 1, seen(up=False))
    later = looked(down, 1 + round(hours * 60), seen(up=False))
    assert bool(later["1"].ports) is kept


def test_a_port_that_one_look_left_out_is_as_it_was() -> None:
    down = looked(looked({}, 0, seen()), 1, seen(up=False))
    assert only_port(looked(down, 2)) == only_port(down)
    # Its other end does not answer, or has another name by now.
    first = looked({}, 0, seen(guid="s"))
    silent = replace(seen(), peer="", peer_guid="", peer_port=0, at_switch=False)
    assert only_port(looked(first, 1, silent)) == only_port(first)
    renamed = only_port(looked(first, 1, seen(peer="spine2", guid="s", bits=50)))
    assert (renamed.peer, renamed.best_bits_per_second) == ("spine2", 200)


@pytest.mark.parametrize(("minutes", "kept"), [(10, 2), (11, 1)])
def test_what_was_counted_while_nobody_read_is_where_counting_begins(
    minutes: int, kept: int
) -> None:
    first = looked({}, 0, seen(symbol_errors=1))
    counts = only_port(looked(first, minutes, seen(symbol_errors=99))).counts
    assert len(counts) == kept


def test_switches_that_are_called_alike_keep_their_names_when_one_is_away() -> None:
    both = LINKS.replace("MF0;spine-1:MQM9700/U1", "leaf1")
    names = {it.guid: name for name, it in read(both, ERRORS).items()}
    assert set(names.values()) == {"leaf1 10000001", "leaf1 20000001"}
    alone = "".join(line for line in both.splitlines(True) if line.startswith("0x0000000010"))
    assert set(read(alone, ERRORS, names)) == {"leaf1 10000001"}
    new = both.replace("0x0000000020000001", "0x0000000020000009")
    assert set(read(new, ERRORS, {"0000000010000001": "leaf1"})) == {"leaf1", "leaf1 20000009"}


def test_an_end_that_does_not_answer_and_a_speed_that_is_not_known_are_no_loss() -> None:
    line = LINKS.splitlines(keepends=True)[0]
    head, _, _ = line.partition("==>")
    found = read(f'{head}==>      "Port not available"\n', "")["leaf1"].ports[1]
    assert (found.up, found.peer, found.peer_guid) == (True, "", "")
    odd = line.replace("53.125 Gbps", "undefined (16)")
    assert read(odd, "")["leaf1"].ports[1].bits_per_second is None
    assert read(odd, "")["leaf1"].ports[1].up
    # One line that cannot be read is left out.
    assert set(read(f'0x12 "x" ==> y\n{LINKS}', "")) == {"leaf1", "spine-1"}


def test_a_record_says_all_of_a_switch() -> None:
    switches = looked(looked({}, 0, seen()), 1, seen(up=False, symbol_errors=4))
    lost = merged(switches, {"x": SeenSwitch(guid="x", ports={})}, "c", NOON + 2 * MINUTE)
    for switch in lost.values():
        record = switch.to_record()
        assert (record.kind, record.id) == (RecordKind.SWITCH, record.subject)
        assert Switch.from_record(Record.from_json(record.to_json())) == switch
    assert only_port(lost).counts[-1] == ErrorCount(at=NOON + MINUTE, symbol_errors=4)


def tools(folder: Path, **texts: str) -> Fabric:
    """Programs that say these, in the place of infiniband-diags."""
    for name in ("ibnetdiscover", "iblinkinfo", "ibqueryerrors"):
        file = folder / name
        file.write_text("#!/bin/sh\n" + texts.get(name, "echo nothing") + "\n")
        file.chmod(0o755)
    return Fabric(folder, 20.0, str(folder))


def say(text: str, code: int = 0) -> str:
    return f"cat <<'END'\n{text}END\nexit {code}"


def watch(folder: Path, fabric: Fabric) -> Watch:
    memory = folder / "switches.json"
    return Watch(partial(read_switches, fabric), "c", memory, ManualClock(NOON), log)


def test_a_look_is_told_remembered_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    fabric = tools(tmp_path, iblinkinfo=say(LINKS), ibqueryerrors=say(ERRORS, 1))
    told: list[Record] = []

    def tell(records: Sequence[Record]) -> None:
        told.extend(records)

    watch(tmp_path, fabric).round(tell)
    assert sorted(it.subject for it in told) == ["c/leaf1", "c/spine-1"]
    without = "".join(line for line in LINKS.splitlines(True) if not line.startswith("0x000000002"))
    again = tools(tmp_path, iblinkinfo=say(without), ibqueryerrors=say(ERRORS, 1))
    told.clear()
    watch(tmp_path, again).round(tell)
    lost = {it.subject: Switch.from_record(it).lost_at for it in told}
    assert lost["c/spine-1"] == NOON


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ({"ibnetdiscover": "echo 'mad_rpc_open_port failed' >&2; exit 255"}, "umad"),
        ({"iblinkinfo": "exit 0"}, "iblinkinfo ended with 0: no reason given"),
        ({"ibqueryerrors": "echo x; exit 255"}, "ibqueryerrors ended with 255"),
        ({"iblinkinfo": "echo '0x12 ==> x'"}, "is no line of a link"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_nothing_is_told(
    tmp_path: Path, texts: dict[str, str], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    fabric = tools(tmp_path, **{"iblinkinfo": say(LINKS), "ibqueryerrors": say(ERRORS), **texts})
    looking = watch(tmp_path, fabric)
    for _ in range(3):
        looking.round(lambda records: pytest.fail(f"told {records}"))
    assert caplog.text.count("the fabric is not read") == 1
    assert why in caplog.text


def test_a_missing_tool_says_what_to_install(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fabric = Fabric(tmp_path, 20.0, str(tmp_path / "nowhere"))
    watch(tmp_path, fabric).round(lambda records: pytest.fail(f"told {records}"))
    assert "install infiniband-diags, or set infiniband.directory" in caplog.text
