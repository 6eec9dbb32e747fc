"""The network's answer: which links, whose jobs, and what nobody sees; by rows as a store gives them."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dashboard.lists.fleet_now import FleetNow, moment_of
from dashboard.lists.links import ASKED, SPAN, measured, times
from dashboard.lists.network import COLUMNS, Cell, Network, network
from dashboard.lists.table import text
from dashboard.model.facts import Facts
from dashboard.model.newest_rows import gpu_table
from dashboard.network.drawing import MOST_ROWS, page
from gpuvigil.clock import SystemClock, to_ns
from gpuvigil.config import AnalyzerSettings
from gpuvigil.lineprotocol import encode
from gpuvigil.model import SWITCH_DEVICE, Impact, Incident, PortIdentity, Severity, Subject
from gpuvigil.store.memory import MemoryStore
from tests.dashboard.scene import gpu, heard, incident, inventory, node, pulses, row
from tests.dashboard.test_fabric import changed, two_by_two
from tests.processor import allowed

NOW = SystemClock().now().replace(microsecond=0)
GBIT = 10**9


def port(of: Subject, device: str = "mlx5_0") -> Subject:
    return replace(of, device=device, port="1")


NODES = [node(f"n-{number}", "prod") for number in range(1, 5)]


def told(
    *ports: tuple[Subject, Mapping[str, float]],
    kind: str = "roce",
    role: str = "fabric",
    now: Mapping[str, int] | None = None,
) -> Any:
    """A store's answer; each port with what its counters gained a second, and its speed; `now`: at last."""
    store = MemoryStore()
    lines = []
    for subject, rates in ports:
        tags = {
            "cluster": subject.cluster,
            "node": subject.node,
            "device": subject.device or "",
            "port": subject.port or "",
            "kind": kind,
            "role": role,
        }
        for step in range(7):
            at = NOW - timedelta(seconds=61 - 10 * step)
            fields = {
                name: int(rate) if name == "speed_bits_per_second" else int(rate * 10 * step)
                for name, rate in rates.items()
            }
            fields |= now if now and step == 6 else {}
            lines.append(encode("port", tags, {"up": 1, **fields}, to_ns(at)))
    store.write("\n".join(filter(None, lines)).encode())
    return store.window("port", ASKED, NOW - SPAN, NOW)


def moment(
    *incidents: Incident,
    racks: int = 2,
    switch: str | None = None,
    silent: Subject | None = None,
) -> FleetNow:
    identities = tuple(
        PortIdentity(
            device=device, port="1", kind="roce", role="fabric", was_up=True, switch=switch,
            switch_port=switch and "Ethernet7",
        )
        for device in ("mlx5_0", "mlx5_1")
    )  # fmt: skip
    return moment_of(
        Facts(
            now=NOW,
            gpus=gpu_table(row(gpu(0, one), 0, NOW) for one in NODES),
            last_seen={
                **heard(NODES, NOW),
                **({} if silent is None else heard([silent], NOW - timedelta(minutes=3))),
            },
            inventories=tuple(
                replace(
                    inventory(one, 1, rack=f"rack-{place % racks + 1}" if racks else None),
                    ports=identities,
                )
                for place, one in enumerate(NODES)
            ),
            incidents=incidents,
            pulses=pulses(NOW),
        ),
        AnalyzerSettings(),
    )


def bad(subject: Subject, *jobs: str, fault: str = "port_errors", **more: Any) -> Incident:
    suffers = Impact(gpus=8, holders=jobs, text=f"{', '.join(jobs)}: 8 GPUs", running=bool(jobs))
    one = incident(fault, subject, Severity.WARNING)
    return replace(one, label=f"{subject.node} {subject.device}", impact=suffers, **more)


BUSY = {
    "speed_bits_per_second": 400 * GBIT,
    "receive_bytes": 10.0 * GBIT,
    "transmit_bytes": 25.0 * GBIT,
    "receive_pause_microseconds": 30_000.0,
    "symbol_errors": 0.0,
}


def said(found: Network) -> str:
    return json.dumps(page(found, NOW), ensure_ascii=False)


def cell(found: Network, row_: int, key: str) -> Any:
    return found.grid.rows[row_][[column.key for column in COLUMNS].index(key)]


def test_links_are_measured_as_shares_and_what_was_not_is_none() -> None:
    other = {"speed_bits_per_second": 400 * GBIT, "receive_bytes": 0.0}
    links = measured(told((port(NODES[0]), BUSY), (port(NODES[1]), other)), ["prod"])
    assert links.load == pytest.approx([50.0, 0.0], nan_ok=True)
    assert links.wait[0] == pytest.approx(3.0)
    assert np.isnan(links.wait[1])
    assert links.errors[0] == 0.0
    assert np.isnan(links.errors[1])
    assert len(measured(told((port(NODES[0]), BUSY)), ["another"])) == 0


def test_packets_that_congestion_drops_are_no_errors_of_a_cable() -> None:
    dropping = {**BUSY, "transmit_discards": 2.0, "retransmits": 1.0}
    failing = {**BUSY, "symbol_errors": 2.0, "link_recoveries": 1.0}
    links = measured(told((port(NODES[0]), dropping), (port(NODES[1]), failing)), ["prod"])
    assert links.errors == pytest.approx([0.0, 3 * 3600.0])
    assert links.losses == pytest.approx([3 * 3600.0, np.nan], nan_ok=True)


def test_ticks_are_told_by_those_of_the_other_ports() -> None:
    ticks = {f"mlx5_{n}": 1000.0 * times for n, times in enumerate((1, 1, 1, 5))}
    rows = [(port(NODES[0], name), {"transmit_wait_ticks": rate}) for name, rate in ticks.items()]
    assert measured(told(*rows), ["prod"]).ticks == pytest.approx([1.0, 1.0, 1.0, 5.0])
    assert np.isnan(measured(told(*rows[:2]), ["prod"]).ticks).all()


def test_ports_that_carry_nothing_do_not_say_how_long_ports_usually_wait() -> None:
    def of(number: int, ticks: float, gigabytes: float) -> tuple[Subject, Mapping[str, float]]:
        rates = {"transmit_wait_ticks": ticks, "transmit_bytes": gigabytes * GBIT}
        speed = {"speed_bits_per_second": 400 * GBIT}
        return port(NODES[number % 4], f"mlx5_{number // 4}"), {**speed, **rates}

    idle = [of(number, 1.0, 0.001) for number in range(6)]
    waiting = of(6, 1377.0, 0.001)
    alone = measured(told(*idle, waiting), ["prod"])
    assert np.isnan(alone.ticks).all()
    busy = [of(7 + number, 1000.0, 10.0) for number in range(3)]
    beside = measured(told(*idle, waiting, *busy), ["prod"])
    assert float(beside.ticks.max()) == pytest.approx(1.377)


def test_a_multiple_of_peers_that_hardly_wait_is_not_told_to_the_last_digit() -> None:
    assert [times(1.377), times(99.96), times(1377.0)] == ["1.4 ×", "100.0 ×", "over 100 ×"]
    rows = [
        (port(one, device), {"transmit_wait_ticks": 1377.0 if place == 3 else 1.0})
        for place, one in enumerate(NODES)
        for device in ("mlx5_0", "mlx5_1")
    ]
    drawn = said(network(moment(), measured(told(*rows), ["prod"])))
    assert '"waits over 100 ×"' in drawn
    assert '"1,377' not in drawn
    assert '"1377' not in drawn


def test_without_a_finding_the_answer_is_no() -> None:
    found = network(moment(), measured(told((port(NODES[0]), BUSY)), ["prod"]))
    assert found.answer == "No: the only link has no finding."
    assert (found.worst, found.to_do, found.summary, list(found.jobs)) == (None, "", "", [])
    assert "Findings" in said(found)
    assert '"Do now: "' not in said(found)


def test_without_any_port_it_is_not_known() -> None:
    found = network(moment(), measured(told(), ["prod"]))
    assert found.answer == "Not known: no network port was measured in the last five minutes."
    assert found.unread == 8
    (unread,) = found.unseen
    assert unread.startswith("8 links that were up before reported nothing")
    assert text(found.grid, 100) == f"{found.answer}\n"


def test_the_gravest_finding_comes_first_whatever_it_costs() -> None:
    grave = bad(port(NODES[1]), severity=Severity.CRITICAL)
    costs = bad(port(NODES[0]), "job 7")
    found = network(moment(costs, grave), measured(told((port(NODES[0]), BUSY)), ["prod"]))
    assert [one.severity for one in found.findings] == [Severity.CRITICAL, Severity.WARNING]
    assert found.worst == grave
    assert found.summary.startswith("First: n-2 mlx5_0: ")
    assert found.answer == "Possibly: 1 job may suffer; 2 findings."


def test_of_findings_as_grave_what_costs_a_job_comes_first_with_the_job() -> None:
    idle = bad(port(NODES[1]))
    costs = bad(port(NODES[0]), "job 7", title="<b>Bad cable</b>")
    found = network(
        moment(idle, costs),
        measured(told((port(NODES[0]), BUSY), (port(NODES[1]), BUSY)), ["prod"]),
    )
    assert found.answer == "Possibly: 1 job may suffer; 2 findings."
    assert found.summary.startswith("First: n-1 mlx5_0: <b>Bad cable</b>, since ")
    assert found.worst is not None
    assert found.worst.subject == port(NODES[0])
    assert (cell(found, 0, "suffers"), cell(found, 0, "load_percent")) == ("job 7", 50.0)
    assert (cell(found, 1, "suffers"), cell(found, 1, "severity")) == (None, "warning")
    drawn = said(found)
    assert "/incidents?incident=" in drawn
    assert '"2 of 2"' in drawn
    assert network(moment(idle), found.links).answer == "No job suffers now; 1 finding."


def known(one: Incident, slower: bool) -> Incident:
    """Return the incident with what is known of the pace of its jobs."""
    return replace(one, impact=replace(one.impact, slower=slower))


@pytest.mark.parametrize("fault", ["port_congested", "port_slow_receiver", "port_down"])
def test_a_job_that_is_known_to_get_less_through_does_suffer(fault: str) -> None:
    unknown = bad(port(NODES[0]), "job 7", fault=fault)
    felt = known(unknown, True)
    links = measured(told((port(NODES[0]), BUSY)), ["prod"])
    assert network(moment(felt), links).answer == "Yes: 1 job suffers; 1 finding."
    assert network(moment(unknown), links).answer == "Possibly: 1 job may suffer; 1 finding."
    also = bad(port(NODES[1]), "job 7", "job 8", "job 9")
    assert (
        network(moment(felt, also), links).answer == "Yes: 1 job suffers, 2 more may; 2 findings."
    )


def test_a_job_whose_pace_is_unchanged_does_not_suffer() -> None:
    kept = known(bad(port(NODES[0]), "job 7"), False)
    found = network(moment(kept), measured(told((port(NODES[0]), BUSY)), ["prod"]))
    assert found.answer == "No: the pace of 1 job is unchanged; 1 finding."
    assert (list(found.jobs), cell(found, 0, "suffers")) == ([], None)
    assert '"Jobs that may suffer"], ["dd", {}, "none"]' in said(found)
    other = bad(port(NODES[1]), "job 8")
    assert network(moment(kept, other), found.links).answer == (
        "Possibly: 1 job may suffer; 2 findings."
    )


@pytest.mark.parametrize(("fault", "is_lost"), [("switch_down", True), ("port_errors", False)])
def test_what_a_lost_switch_s_ports_carried_is_not_the_switch_s(fault: str, is_lost: bool) -> None:
    rows = [(port(one), {**BUSY, "symbol_errors": 2.0}) for one in NODES[:2]]
    leaf = bad(port(NODES[0]), fault=fault, members=tuple(port(it).key for it in NODES[:2]))
    found = network(moment(leaf, switch="leaf-1"), measured(told(*rows), ["prod"]))
    assert len(found.grid.rows) == 1
    assert cell(found, 0, "switch") == "leaf-1"
    names = ("load_percent", "errors_per_hour", "wait_percent", "speed_gbit_per_second")
    assert all((cell(found, 0, name) is None) is is_lost for name in names)
    # A single port's numbers are its own.
    alone = replace(leaf, members=())
    assert cell(network(moment(alone), found.links), 0, "load_percent") == 50.0


def test_a_row_of_ports_at_two_switches_names_none_and_a_switch_names_itself() -> None:
    links = measured(told((port(NODES[0]), BUSY)), ["prod"])
    leaf = bad(port(NODES[0]), fault="switch_down", members=tuple(port(it).key for it in NODES[:2]))
    elsewhere = moment(leaf, switch="leaf-1")
    first, *others = elsewhere.inventories
    moved = replace(first, ports=tuple(replace(it, switch="leaf-2") for it in first.ports))
    found = network(replace(elsewhere, inventories=(moved, *others)), links)
    assert cell(found, 0, "switch") is None
    itself = Subject(cluster="prod", node="leaf1", device=SWITCH_DEVICE, port="0")
    dead = replace(leaf, subject=itself, members=(itself.key,))
    assert cell(network(moment(dead), links), 0, "switch") == "leaf1"


def test_whose_jobs_go_over_a_cable_between_switches_nobody_says() -> None:
    switch = Subject(cluster="prod", node="leaf1", device=SWITCH_DEVICE, port="21")
    cable = replace(bad(port(NODES[0])), subject=switch, members=(switch.key,))
    unknown = replace(cable, impact=replace(cable.impact, jobs_across=None))
    found = network(moment(unknown), measured(told((port(NODES[0]), BUSY)), ["prod"]))
    assert found.answer == "Whose jobs suffer is not known; 1 finding."
    assert "/network?link=prod%2Fleaf1%2Fport%2Fswitch%2F21" in said(found)
    assert '"Jobs that may suffer"], ["dd", {}, "not known"]' in said(found)
    both = network(moment(unknown, bad(port(NODES[0]), "job 7")), found.links)
    assert both.answer == "Possibly: 1 job may suffer; 2 findings."


@pytest.mark.parametrize(
    ("count", "answer", "tile"),
    [
        (0, "No job suffers now; 1 finding.", "none"),
        (3, "Possibly: 3 jobs may suffer; 1 finding.", "3"),
    ],
)
def test_jobs_known_to_need_a_cable_between_switches_are_counted(
    count: int, answer: str, tile: str
) -> None:
    switch = Subject(cluster="prod", node="leaf1", device=SWITCH_DEVICE, port="21")
    cable = replace(bad(port(NODES[0])), subject=switch, members=(switch.key,))
    cable = replace(cable, impact=replace(cable.impact, jobs_across=count))
    found = network(moment(cable), measured(told((port(NODES[0]), BUSY)), ["prod"]))
    assert found.answer == answer
    assert f'"Jobs that may suffer"], ["dd", {{}}, "{tile}"]' in said(found)


def test_links_that_nobody_judged_have_no_column_of_verdicts() -> None:
    full = {**BUSY, "transmit_bytes": 49.9 * GBIT}
    calm = network(moment(), measured(told((port(NODES[0]), BUSY)), ["prod"]))
    assert "Busiest links" in said(calm)
    assert '"Verdict"' not in said(calm)
    judged = network(moment(), measured(told((port(NODES[0]), full)), ["prod"]))
    assert '"Verdict"' in said(judged)


def test_a_job_that_has_ended_suffers_no_more() -> None:
    over = bad(port(NODES[0]), "job 7")
    over = replace(over, impact=replace(over.impact, running=False))
    found = network(moment(over), measured(told((port(NODES[0]), BUSY)), ["prod"]))
    assert found.answer == "No job suffers now; 1 finding."
    assert list(found.jobs) == []
    assert '"Jobs that may suffer"], ["dd", {}, "none"]' in said(found)


def test_a_link_with_a_finding_that_tells_nothing_is_one_more_than_was_measured() -> None:
    links = measured(told((port(NODES[0]), BUSY)), ["prod"])
    found = network(moment(bad(port(NODES[1]))), links)
    assert '"1 of 2"' in said(found)
    assert '"1 of 1"' in said(network(moment(bad(port(NODES[0]))), links))


def test_links_that_were_up_and_tell_nothing_are_counted() -> None:
    rows = [(port(one, device), BUSY) for one in NODES for device in ("mlx5_0", "mlx5_1")]
    assert network(moment(), measured(told(*rows), ["prod"])).unread == 0
    found = network(moment(), measured(told(*rows[1:]), ["prod"]))
    assert found.unread == 1
    assert '"Links not readable"], ["dd", {}, "1"]' in said(found)
    assert found.answer == "No: none of 7 links has a finding."


def test_what_a_silent_node_told_a_moment_ago_is_not_readable_now() -> None:
    rows = [(port(one, device), BUSY) for one in NODES for device in ("mlx5_0", "mlx5_1")]
    silent = moment(silent=NODES[0])
    found = network(silent, measured(told(*rows[3:]), ["prod"]))
    assert found.unread == 3
    first, second, *_ = found.unseen
    assert first.startswith("1 link that was up before reported nothing in the last five minutes")
    assert second == "1 node without data: its ports are not seen."


def test_where_no_fabric_port_tells_waits_the_answer_is_not_no() -> None:
    blind = {"speed_bits_per_second": 400 * GBIT, "receive_bytes": 1.0}
    ports = [(port(NODES[0]), blind), (port(NODES[1]), blind)]
    found = network(moment(), measured(told(*ports), ["prod"]))
    assert found.answer.startswith("No link has a finding, but congestion is not measured")
    one_tells = [ports[0], (port(NODES[1]), BUSY)]
    found = network(moment(), measured(told(*one_tells), ["prod"]))
    assert found.answer == "No: none of 2 links has a finding."
    of_a_desk = measured(told(*ports[:1], role="management"), ["prod"])
    assert network(moment(), of_a_desk).answer == "No: the only link has no finding."


@pytest.mark.parametrize(("times", "is_listed"), [(3.9, False), (4.1, True)])
def test_a_link_that_waits_for_credit_far_longer_than_its_peers_is_listed_first(
    times: float, is_listed: bool
) -> None:
    def of(name: str, ticks: float, gigabytes: float) -> tuple[Subject, Mapping[str, float]]:
        rates = {"transmit_wait_ticks": ticks, "transmit_bytes": gigabytes * GBIT}
        return port(NODES[0], name), {"speed_bits_per_second": 400 * GBIT, **rates}

    usual = [of(f"mlx5_{n}", 1000.0, 10.0 + n) for n in range(4)]
    rows = [*usual, of("mlx5_4", 1000.0 * times, 0.0)]
    found = network(moment(), measured(told(*rows, kind="infiniband"), ["prod"]))
    assert found.grid.rows_for_people == 1
    assert cell(found, 0, "device") == ("mlx5_4" if is_listed else "mlx5_3")


def test_a_busy_link_comes_before_the_few_errors_that_every_link_has() -> None:
    full = {**BUSY, "transmit_bytes": 48.0 * GBIT, "receive_pause_microseconds": 0.0}
    noisy = {**BUSY, "symbol_errors": 1.0, "receive_pause_microseconds": 0.0}
    links = measured(told((port(NODES[0]), noisy), (port(NODES[1]), full)), ["prod"])
    assert cell(network(moment(), links), 0, "node") == "n-2"


def test_other_incidents_are_no_matter_of_the_network() -> None:
    hot = incident("gpu_hot", gpu(0, NODES[0]), Severity.WARNING)
    found = network(moment(hot), measured(told((port(NODES[0]), BUSY)), ["prod"]))
    assert found.answer.startswith("No: ")


def test_a_switch_is_one_row_with_the_worst_of_its_ports() -> None:
    ports = [port(one) for one in NODES[:3]]
    waits = [{**BUSY, "receive_pause_microseconds": 1e4 * n} for n in (1, 20, 3)]
    waits[0]["speed_bits_per_second"] = 100 * GBIT
    one = bad(ports[0], "job 7", "job 8", fault="switch_congested")
    one = replace(one, members=tuple(it.key for it in ports))
    found = network(moment(one), measured(told(*zip(ports, waits, strict=True)), ["prod"]))
    assert len(found.grid.rows) == 1
    assert cell(found, 0, "wait_percent") == pytest.approx(20.0)
    assert cell(found, 0, "speed_gbit_per_second") == 100.0
    assert cell(found, 0, "suffers") == "job 7 and 1 more"
    assert '"3 of 3"' in said(found)


def test_a_link_that_became_slower_has_its_speed_of_now() -> None:
    slower = told((port(NODES[0]), BUSY), now={"speed_bits_per_second": 100 * GBIT})
    assert cell(network(moment(), measured(slower, ["prod"])), 0, "speed_gbit_per_second") == 100.0


@pytest.mark.parametrize(("gigabytes", "is_full"), [(47.4, False), (47.6, True)])
def test_a_link_that_is_full_is_called_so(gigabytes: float, is_full: bool) -> None:
    rates = {**BUSY, "receive_bytes": gigabytes * GBIT}
    found = network(moment(), measured(told((port(NODES[0]), rates)), ["prod"]))
    assert ('"Full"' in said(found)) is is_full


def test_a_link_says_where_its_cable_ends() -> None:
    links = measured(told((port(NODES[0]), BUSY)), ["prod"])
    found = network(moment(switch="leaf-1"), links)
    assert cell(found, 0, "link") == "n-1 mlx5_0 → leaf-1 port Ethernet7"
    assert cell(found, 0, "switch") == "leaf-1"
    assert cell(network(moment(), links), 0, "link") == "n-1 mlx5_0"
    active = network(moment(bad(port(NODES[0])), switch="leaf-1"), links)
    assert cell(active, 0, "link") == "n-1 mlx5_0 → leaf-1 port Ethernet7"
    assert cell(active, 0, "switch") == "leaf-1"
    assert active.summary.startswith("First: n-1 mlx5_0 → leaf-1 port Ethernet7: ")


def test_where_no_host_heard_it_a_switch_says_where_a_cable_ends() -> None:
    links = measured(told((port(NODES[0]), BUSY)), ["prod"])
    at_host = {"peer": "n-1 mlx5_0", "peer_port": 1}
    before = changed(two_by_two("prod"), "leaf1", 1, **at_host, up=False)
    found = network(moment(), links, None, before)
    assert cell(found, 0, "link") == "n-1 mlx5_0 → leaf1 port 1"
    # A host that was moved hangs at the port that is up.
    moved = changed(before, "leaf2", 2, **at_host)
    assert cell(network(moment(), links, None, moved), 0, "switch") == "leaf2"
    heard = network(moment(switch="leaf-9"), links, None, moved)
    assert cell(heard, 0, "switch") == "leaf-9"


def test_the_command_says_what_to_do_below_its_answer_as_the_page_does() -> None:
    links = measured(told((port(NODES[0]), BUSY)), ["prod"])
    one = bad(port(NODES[0]), "job 7", action="Replace the cable.")
    found = network(moment(one), links)
    answer, to_do = found.grid.head
    assert answer == f"Possibly: 1 job may suffer; 1 finding. {found.summary}"
    assert to_do == "Do now: Replace the cable."
    assert list(network(moment(), links).grid.head) == ["No: the only link has no finding."]


def test_a_cell_tells_waits_for_credit_where_they_are_far_longer_than_usual() -> None:
    rows = [
        (port(one, device), {"transmit_wait_ticks": 5000.0 if place == 3 else 1000.0})
        for place, one in enumerate(NODES)
        for device in ("mlx5_0", "mlx5_1")
    ]
    found = network(moment(), measured(told(*rows), ["prod"]))
    assert {rack: cells["mlx5_0"].times for rack, cells in found.racks.items()} == {
        "rack-1": 1.0,
        "rack-2": 5.0,
    }
    drawn = said(found)
    assert '"waits 5 ×"' in drawn
    assert '"waits 1 ×"' not in drawn


def test_racks_and_rails_are_a_matrix_where_there_are_several_of_both() -> None:
    rows = [
        (port(one, device), {**BUSY, "receive_pause_microseconds": 1e4 * place})
        for place, one in enumerate(NODES)
        for device in ("mlx5_0", "mlx5_1")
    ]
    links = measured(told(*rows), ["prod"])
    found = network(moment(), links)
    assert list(found.rails) == ["mlx5_0", "mlx5_1"]
    assert {rack: cells["mlx5_1"].wait for rack, cells in found.racks.items()} == pytest.approx(
        {"rack-1": 2.0, "rack-2": 3.0}
    )
    assert "waits 3 %" in said(found)
    assert list(network(moment(racks=1), links).rails) == []
    assert list(network(moment(racks=0), links).rails) == []


@pytest.mark.parametrize(
    ("fault", "down"), [("port_down", "2 down"), ("switch_down", "2 down"), ("port_errors", None)]
)
def test_a_cell_tells_how_many_of_its_links_are_down(fault: str, down: str | None) -> None:
    rows = [(port(one, device), BUSY) for one in NODES for device in ("mlx5_0", "mlx5_1")]
    first, second = (port(NODES[place], "mlx5_1") for place in (1, 3))
    one = bad(first, fault=fault, members=(first.key, second.key))
    found = network(moment(one), measured(told(*rows), ["prod"]))
    assert {rack: [it.down for it in cells.values()] for rack, cells in found.racks.items()} == {
        "rack-1": [0, 0],
        "rack-2": [0, 2 if down else 0],
    }
    assert ('"2 down"' in said(found)) is (down is not None)


@pytest.mark.parametrize(
    ("cell_", "look"),
    [
        (Cell(down=1, wait=None, load=None, times=None), "hot"),
        (Cell(down=0, wait=90.0, load=99.0, times=None), "full"),
        (Cell(down=0, wait=6.0, load=99.0, times=None), "busy"),
        (Cell(down=0, wait=None, load=99.0, times=None), "full"),
        (Cell(down=0, wait=None, load=70.0, times=None), "busy"),
        (Cell(down=0, wait=None, load=10.0, times=9.0), "busy"),
        (Cell(down=0, wait=2.0, load=99.0, times=None), "calm"),
        (Cell(down=0, wait=None, load=10.0, times=None), "calm"),
    ],
)
def test_only_a_fault_has_the_colour_of_one_and_the_legend_names_every_colour(
    cell_: Cell, look: str
) -> None:
    shown = replace(network(moment(), measured(told(), ["prod"])), rails=["mlx5_0"])
    drawn = page(replace(shown, racks={"rack-1": {"mlx5_0": cell_}}), NOW)
    (matrix,) = [it for it in drawn if isinstance(it, list) and it[1].get("key") == "matrix"]
    every = [it for it in _all(matrix) if it[1].get("class") in {"hot", "full", "busy", "calm"}]
    assert [it[1]["class"] for it in every if it[0] == "td"] == [look]
    assert [it[1]["class"] for it in every if it[0] == "span"] == ["hot", "busy", "full"]


def _all(node_: list[Any]) -> Iterator[list[Any]]:
    yield node_
    for it in node_[2:]:
        if isinstance(it, list):
            yield from _all(it)


def test_what_is_not_seen_is_said() -> None:
    blind = {"speed_bits_per_second": 400 * GBIT, "receive_bytes": 1.0}
    found = network(
        moment(), measured(told((port(NODES[0]), BUSY), (port(NODES[1]), blind)), ["prod"])
    )
    assert found.unseen[0].startswith("No waits from 1 of 2 fabric ports: ")
    assert "switch counters" in found.unseen[-1]


def test_many_findings_are_cut_and_say_where_the_whole_is() -> None:
    many = [
        replace(bad(port(NODES[0], f"mlx5_{n}"), "job 7"), id=f"i-{n}")
        for n in range(MOST_ROWS + 2)
    ]
    found = network(moment(*many), measured(told((port(NODES[0]), BUSY)), ["prod"]))
    assert "2 more: run gpuvigil network" in said(found)


def of_a_large_fleet(nodes: int, devices: int) -> pa.Table:
    """As a store tells it: of every port the same counters, and each waits a little more."""
    count = nodes * devices
    begin, end = (pa.scalar(one, pa.timestamp("us", tz="UTC")) for one in (NOW - SPAN, NOW))
    tags = {
        "cluster": ["prod"] * count,
        "node": [f"n-{place // devices}" for place in range(count)],
        "device": [f"mlx5_{place % devices}" for place in range(count)],
        "port": ["1"] * count,
        "kind": ["roce"] * count,
        "role": ["fabric"] * count,
    }
    counters = {one.column: np.arange(count) for one in ASKED}
    spans = {"first_at": pa.repeat(begin, count), "last_at": pa.repeat(end, count)}
    return pa.table({**tags, **counters, **spans})


@pytest.mark.medium
def test_the_ports_of_a_large_fleet_are_looked_at_quickly() -> None:
    told_ = of_a_large_fleet(12_500, 9)
    active = moment(bad(port(NODES[0]), "job 7"))
    began = time.process_time()
    found = network(active, measured(told_, ["prod"]), MOST_ROWS)
    assert time.process_time() - began < allowed(2.0)  # it was four seconds
    assert len(found.links) == 112_500
    assert len(found.grid.rows) == 1 + MOST_ROWS
    assert cell(found, 1, "node") == "n-12499"
    assert len(network(active, found.links).grid.rows) == 112_500


def test_cables_between_switches_are_links_as_well() -> None:
    links = measured(told((port(NODES[0]), BUSY)), ["prod"])
    switch = Subject(cluster="prod", node="leaf1", device=SWITCH_DEVICE, port="3")
    one = replace(bad(port(NODES[0])), subject=switch, members=(switch.key,))
    found = network(moment(one), links, None, two_by_two("prod"))
    assert '"1 of 9"' in said(found)
    assert '"svg"' in said(found)
    assert any("but not load" in line for line in found.unseen)
    assert '"svg"' not in said(network(moment(one), links))


def test_a_link_is_one_link_whichever_of_its_ends_a_finding_names() -> None:
    links = measured(told((port(NODES[0]), BUSY)), ["prod"])
    plugged = changed(two_by_two("prod"), "leaf1", 1, peer="n-1 mlx5_0", peer_port=1)
    switch = Subject(cluster="prod", node="leaf1", device=SWITCH_DEVICE, port="1")
    both = replace(bad(port(NODES[0])), subject=switch, members=(switch.key, port(NODES[0]).key))
    assert '"1 of 9"' in said(network(moment(both), links, None, plugged))
    alone = replace(both, members=(switch.key,))
    assert '"1 of 9"' in said(network(moment(alone), links, None, plugged))


def test_the_answer_counts_cables_between_switches_too() -> None:
    links = measured(told((port(NODES[0]), BUSY)), ["prod"])
    alone, read = network(moment(), links), network(moment(), links, None, two_by_two("prod"))
    assert alone.answer == "No: the only link has no finding."
    assert read.answer == "No: none of 9 links has a finding."
    assert '"0 of 9"' in said(read)


def test_a_leaf_is_called_by_its_name_without_the_nodes_at_it() -> None:
    links = measured(told((port(NODES[0]), BUSY)), ["prod"])
    called = "switch leaf-01-0 (mlx5_0 of n-1, n-2, n-3, n-4 and 12 more nodes)"
    leaf = replace(bad(port(NODES[0])), label=called)
    found = network(moment(leaf), links)
    assert cell(found, 0, "link") == "switch leaf-01-0"
    assert found.summary.startswith("First: switch leaf-01-0: ")
