"""Links that a job fills: which they are, whose they are, and where that is said."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dashboard.lists.fleet_now import FleetNow
from dashboard.lists.full_links import in_words
from dashboard.lists.links import SPAN, measured
from dashboard.lists.network import Network, network
from dashboard.lists.one_job_now import Running, fills_words, sentences
from dashboard.network.link import page as link_page
from gpuvigil.model import Allocation, Holder, Incident
from tests.dashboard.scene import NOON, allocation, gpu

from .test_jobs import one, site
from .test_network import BUSY, GBIT, NODES, NOW, bad, cell, moment, port, said, told

CALM = {**BUSY, "receive_pause_microseconds": 0.0}
# Of 400 Gbit/s: 95.2 %.
FULL = {**CALM, "receive_bytes": 47.6 * GBIT}
MINE = [allocation(gpu(index, NODES[0]), "job 7") for index in range(2)]


def holding(held: Sequence[Allocation], *incidents: Incident) -> FleetNow:
    by_gpu: dict[tuple[str, str, str], tuple[Allocation, ...]] = {}
    for it in held:
        key = it.subject.cluster, it.subject.node, it.subject.gpu or ""
        by_gpu[key] = (*by_gpu.get(key, ()), it)
    return replace(moment(*incidents), allocations=by_gpu)


def seen(
    held: Sequence[Allocation] = MINE, *incidents: Incident, role: str = "fabric", **more: float
) -> Network:
    """One node's port that is full, and another's that is not."""
    rows = told((port(NODES[0]), {**FULL, **more}), (port(NODES[1]), CALM), role=role)
    return network(holding(held, *incidents), measured(rows, ["prod"]))


def fills(found: Network) -> bool:
    """Return whether the job is named everywhere, or nowhere."""
    places: set[bool] = {
        cell(found, 0, "verdict") == "job 7 fills this link",
        found.answer == "No: none of 2 links has a finding; job 7 fills 1 of them.",
        '"job 7 fills this link"' in said(found),
        " fills this link: " in text_of(found),
    }
    (everywhere,) = places
    return everywhere


def text_of(found: Network) -> str:
    return str(link_page(found, port(NODES[0]).key, NOW))


def test_who_asks_for_the_network_for_a_link_or_for_the_job_is_told_which_link_it_fills() -> None:
    found = seen()
    assert fills(found)
    assert "/job?cluster=prod&job=7" in text_of(found)
    assert "95 % of its speed. That is no fault" in text_of(found)
    assert cell(found, 0, "suffers") is None
    assert " fills this link: " not in str(link_page(found, port(NODES[1]).key, NOW))


@pytest.mark.parametrize(("gigabytes", "is_full"), [(47.4, False), (47.6, True)])
def test_a_link_is_full_from_95_percent_on(gigabytes: float, is_full: bool) -> None:
    assert fills(seen(receive_bytes=gigabytes * GBIT)) is is_full


@pytest.mark.parametrize(("lost", "is_full"), [(0.9, True), (1.1, False)])
@pytest.mark.parametrize("counter", ["retransmits", "transmit_discards", "receive_discards"])
def test_one_that_loses_packets_is_not_merely_full(
    counter: str, lost: float, is_full: bool
) -> None:
    more: dict[str, Any] = {counter: lost}
    found = seen(**more)
    assert bool(found.filled) is is_full
    assert cell(found, 0, "verdict") == ("job 7 fills this link" if is_full else "Full")


def test_what_is_no_fabric_port_carries_more_than_a_job_s_communication() -> None:
    assert not seen(role="storage").filled
    assert not seen(role="management").filled


@pytest.mark.parametrize(
    ("others", "is_known"),
    [
        ([allocation(gpu(2, NODES[0]), "job 8")], False),
        ([allocation(gpu(2, NODES[1]), "job 8")], True),
        ([replace(allocation(gpu(2, NODES[0]), "job 8"), ended_at=NOW)], True),
        ([allocation(gpu(2, NODES[0]), "pid 12")], False),
    ],
)
def test_of_a_node_that_jobs_share_it_is_not_known_who_fills_its_links(
    others: list[Allocation], is_known: bool
) -> None:
    assert bool(seen([*MINE, *others]).filled) is is_known


def test_a_process_that_nobody_submitted_is_no_job() -> None:
    assert not seen([allocation(gpu(0, NODES[0]), "pid 12")]).filled
    assert not seen([]).filled


@pytest.mark.parametrize(("seconds", "is_known"), [(-1, False), (1, True)])
def test_a_job_that_just_began_did_not_fill_it_for_all_of_the_minutes(
    seconds: float, is_known: bool
) -> None:
    began = NOW - SPAN - timedelta(seconds=seconds)
    young = [MINE[0], replace(MINE[1], started_at=began)]
    assert bool(seen(young).filled) is is_known


def test_a_link_with_a_finding_has_that_verdict() -> None:
    found = seen(MINE, bad(port(NODES[0]), "job 7"))
    assert not found.filled
    assert " fills this link: " not in text_of(found)


def test_several_jobs_are_counted_after_the_one_that_fills_most() -> None:
    seven, eight, nine = (Holder.parse(f"job {number}") for number in (7, 8, 9))
    ports: list[Any] = [("prod", f"n-{number}", "mlx5_0", "1") for number in range(5)]
    found = dict(zip(ports, (seven, eight, eight, nine, eight), strict=True))
    assert in_words(found) == "job 8 fills 3 of them, and 2 other jobs 2"
    assert in_words({}) == ""


def test_why_says_which_links_a_job_fills() -> None:
    ports = [("prod", f"n-{number}", "mlx5_0", "1") for number in range(1, 7)]
    assert fills_words([]) == ""
    assert fills_words(ports[:1]) == (
        "It fills this link: n-1 mlx5_0 (95 % of the speed or more). That is no fault."
    )
    assert fills_words(ports) == (
        "It fills these links: n-1 mlx5_0, n-2 mlx5_0, n-3 mlx5_0, n-4 mlx5_0 and 2 more links"
        " (95 % of the speed or more). That is no fault."
    )
    now = Running(job=one(), now=NOON, reliability=site(), fills=ports[:1])
    assert fills_words(ports[:1]) in sentences(now)
