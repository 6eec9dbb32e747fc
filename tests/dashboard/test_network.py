"""The network's answer: which links, whose jobs, and what nobody sees; by rows as a store gives them."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from dashboard.lists.fleet_now import Moment, moment_of
from dashboard.lists.network import ASKED, COLUMNS, SPAN, Network, measured, network
from dashboard.lists.table import text
from dashboard.model.facts import Facts
from dashboard.model.newest_rows import gpu_table
from dashboard.network.drawing import MOST_ROWS, page
from gpuvigil.clock import SystemClock, to_ns
from gpuvigil.config import AnalyzerSettings
from gpuvigil.lineprotocol import encode
from gpuvigil.model import Impact, Incident, PortIdentity, Severity, Subject
from gpuvigil.store.memory import MemoryStore
from tests.dashboard.scene import gpu, heard, incident, inventory, node, pulses, row

NOW = SystemClock().now().replace(microsecond=0)
GBIT = 10**9


def port(of: Subject, device: str = "mlx5_0") -> Subject:
    return replace(of, device=device, port="1")


NODES = [node(f"n-{number}", "prod") for number in range(1, 5)]


def told(
    *ports: tuple[Subject, Mapping[str, float]], kind: str = "roce", role: str = "fabric"
) -> Any:
    """A store's answer; each port with what its counters gained a second, and its speed."""
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
            lines.append(encode("port", tags, {"up": 1, **fields}, to_ns(at)))
    store.write("\n".join(filter(None, lines)).encode())
    return store.window("port", ASKED, NOW - SPAN, NOW)


def moment(*incidents: Incident, racks: int = 2, switch: str | None = None) -> Moment:
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
            heard=heard(NODES, NOW),
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


def test_ticks_are_told_by_those_of_the_other_ports() -> None:
    ticks = {f"mlx5_{n}": 1000.0 * times for n, times in enumerate((1, 1, 1, 5))}
    rows = [(port(NODES[0], name), {"transmit_wait_ticks": rate}) for name, rate in ticks.items()]
    assert measured(told(*rows), ["prod"]).ticks == pytest.approx([1.0, 1.0, 1.0, 5.0])
    assert np.isnan(measured(told(*rows[:2]), ["prod"]).ticks).all()


def test_without_a_finding_the_answer_is_no() -> None:
    found = network(moment(), measured(told((port(NODES[0]), BUSY)), ["prod"]))
    assert found.answer == "No: none of 1 link has a finding."
    assert (found.worst, found.to_do, found.said, list(found.jobs)) == (None, "", "", [])
    assert "Findings" in said(found)
    assert '"Do now: "' not in said(found)


def test_without_any_port_it_is_not_known() -> None:
    found = network(moment(), measured(told(), ["prod"]))
    assert found.answer == "Not known: no network port was measured in the last five minutes."
    assert list(found.unseen) == []
    assert text(found.grid, 100) == f"{found.answer}\n"


def test_a_finding_that_costs_a_job_comes_first_with_the_job() -> None:
    idle = bad(port(NODES[1]), severity=Severity.CRITICAL)
    costs = bad(port(NODES[0]), "job 7", title="<b>Bad cable</b>")
    found = network(
        moment(idle, costs),
        measured(told((port(NODES[0]), BUSY), (port(NODES[1]), BUSY)), ["prod"]),
    )
    assert found.answer == "Yes: 1 job may suffer; 2 findings."
    assert found.said.startswith("n-1 mlx5_0: <b>Bad cable</b>, since ")
    assert found.worst is not None
    assert found.worst.subject == port(NODES[0])
    assert (cell(found, 0, "suffers"), cell(found, 0, "load_percent")) == ("job 7", 50.0)
    assert (cell(found, 1, "suffers"), cell(found, 1, "severity")) == (None, "critical")
    drawn = said(found)
    assert "/incidents?incident=" in drawn
    assert '"2 of 2"' in drawn
    assert network(moment(idle), found.links).answer == "No job suffers now; 1 finding."


def test_other_incidents_are_no_matter_of_the_network() -> None:
    hot = incident("gpu_hot", gpu(0, NODES[0]), Severity.WARNING)
    found = network(moment(hot), measured(told((port(NODES[0]), BUSY)), ["prod"]))
    assert found.answer.startswith("No: ")


def test_a_switch_is_one_row_with_the_worst_of_its_ports() -> None:
    ports = [port(one) for one in NODES[:3]]
    waits = [{**BUSY, "receive_pause_microseconds": 1e4 * n} for n in (1, 20, 3)]
    one = bad(ports[0], "job 7", "job 8", fault="switch_congested")
    one = replace(one, members=tuple(it.key for it in ports))
    found = network(moment(one), measured(told(*zip(ports, waits, strict=True)), ["prod"]))
    assert len(found.grid.rows) == 1
    assert cell(found, 0, "wait_percent") == pytest.approx(20.0)
    assert cell(found, 0, "suffers") == "job 7 and 1 more"
    assert '"3 of 3"' in said(found)


@pytest.mark.parametrize(("gigabytes", "is_full"), [(47.4, False), (47.6, True)])
def test_a_link_that_is_full_is_called_so(gigabytes: float, is_full: bool) -> None:
    rates = {**BUSY, "receive_bytes": gigabytes * GBIT}
    found = network(moment(), measured(told((port(NODES[0]), rates)), ["prod"]))
    assert ("Carries all that it can" in said(found)) is is_full


def test_a_link_says_where_its_cable_ends() -> None:
    links = measured(told((port(NODES[0]), BUSY)), ["prod"])
    found = network(moment(switch="leaf-1"), links)
    assert cell(found, 0, "link") == "n-1 mlx5_0 → leaf-1 port Ethernet7"
    assert cell(found, 0, "switch") == "leaf-1"
    assert cell(network(moment(), links), 0, "link") == "n-1 mlx5_0"


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


def test_what_is_not_seen_is_said() -> None:
    blind = {"speed_bits_per_second": 400 * GBIT, "receive_bytes": 1.0}
    found = network(
        moment(), measured(told((port(NODES[0]), BUSY), (port(NODES[1]), blind)), ["prod"])
    )
    assert found.unseen[0].startswith("1 fabric port of 2 tell no waits")
    assert "switches" in found.unseen[-1]


def test_many_findings_are_cut_and_say_where_the_whole_is() -> None:
    many = [
        replace(bad(port(NODES[0], f"mlx5_{n}"), "job 7"), id=f"i-{n}")
        for n in range(MOST_ROWS + 2)
    ]
    found = network(moment(*many), measured(told((port(NODES[0]), BUSY)), ["prod"]))
    assert "2 more: gpuvigil network" in said(found)


def test_a_thousand_ports_are_one_look() -> None:
    rows = [
        (port(node(f"n-{number}", "prod"), f"mlx5_{device}"), {"receive_bytes": 1e9})
        for number in range(125)
        for device in range(8)
    ]
    table = told(*rows)
    links = measured(table, ["prod"])
    assert len(network(moment(), links).grid.rows) == len(links) == 1000
