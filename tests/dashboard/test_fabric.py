"""A fabric between its hosts: leaves by spines, from what its reader wrote down."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from dashboard.lists.wiring import Cable, Wiring, wirings
from dashboard.network.fabric import MOST_DRAWN, MOST_LEAVES, MOST_SPINES, fabric, kind, words
from gpuvigil.clock import SystemClock
from gpuvigil.model import SWITCH_DEVICE, ErrorCount, Subject, Switch, SwitchPort
from gpuvigil.web.page_links import link_page, switch_page

NOW = SystemClock().now().replace(microsecond=0)
HOUR = timedelta(hours=1)
FAST = 400 * 10**9


def cable(number: int, peer: str, peer_port: int, errors: int = 0) -> SwitchPort:
    return SwitchPort(
        number=number,
        up=True,
        since=NOW - HOUR,
        peer=peer,
        peer_port=peer_port,
        at_switch=True,
        bits_per_second=FAST,
        best_bits_per_second=FAST,
        counts=(
            ErrorCount(at=NOW - HOUR, symbol_errors=5),
            ErrorCount(at=NOW, symbol_errors=5 + errors),
        ),
    )


def host(number: int, name: str, up: bool = True) -> SwitchPort:
    return SwitchPort(number=number, up=up, since=NOW - HOUR, peer=f"{name} mlx5_0")


def switch(name: str, *ports: SwitchPort, cluster: str = "lab") -> Switch:
    return Switch(subject=Subject(cluster=cluster, node=name), at=NOW, guid=name, ports=ports)


def two_by_two(cluster: str = "lab") -> list[Switch]:
    """Two leaves with two hosts each, and two spines; two cables from each leaf to each spine."""
    leaves = [
        switch(
            f"leaf{leaf}",
            host(1, f"n{leaf}1"),
            host(2, f"n{leaf}2"),
            *(
                cable(3 + 2 * spine + twin, f"spine{spine + 1}", 2 * leaf + twin)
                for spine in range(2)
                for twin in range(2)
            ),
            cluster=cluster,
        )
        for leaf in (1, 2)
    ]
    spines = [
        switch(
            f"spine{spine + 1}",
            *(
                cable(2 * leaf + twin, f"leaf{leaf}", 3 + 2 * spine + twin)
                for leaf in (1, 2)
                for twin in range(2)
            ),
            cluster=cluster,
        )
        for spine in range(2)
    ]
    return [*leaves, *spines]


def changed(switches: list[Switch], name: str, number: int, **more: object) -> list[Switch]:
    """The same fabric with one end of one cable other than it was."""

    def port(of: str, one: SwitchPort) -> SwitchPort:
        is_it = (of, one.number) == (name, number)
        return replace(one, **more) if is_it else one  # type: ignore[arg-type]

    return [
        replace(it, ports=tuple(port(it.subject.node, one) for one in it.ports)) for it in switches
    ]


def one(switches: list[Switch]) -> Wiring:
    (found,) = wirings(switches, NOW)
    return found


def of(found: Wiring, leaf: str, spine: str) -> tuple[str, str]:
    cables = found.cables[leaf, spine]
    return words(cables), kind(cables)


def test_leaves_are_the_switches_with_hosts_and_spines_those_above_them() -> None:
    found = one(two_by_two())
    assert (found.leaves, found.spines) == (["leaf1", "leaf2"], ["spine1", "spine2"])
    assert found.hosts == {"leaf1": 2, "leaf2": 2}
    assert {pair: len(them) for pair, them in found.cables.items()} == {
        (leaf, spine): 2 for leaf in found.leaves for spine in found.spines
    }
    assert of(found, "leaf2", "spine1") == ("2 up", "calm")
    assert found.cables["leaf2", "spine1"][1].name == "leaf2 port 4 → spine1 port 5"


def test_a_port_for_management_makes_no_spine_a_leaf() -> None:
    oob = replace(host(99, "oob1"), name="mgmt0", peer="oob1 Gi1/0/3")
    found = one([replace(it, ports=(*it.ports, oob)) for it in two_by_two()])
    assert (found.leaves, found.spines) == (["leaf1", "leaf2"], ["spine1", "spine2"])
    assert found.hosts == {"leaf1": 2, "leaf2": 2}


def test_a_cable_that_is_down_slow_or_has_errors_is_said_and_coloured() -> None:
    fine = two_by_two()
    assert of(one(changed(fine, "leaf1", 3, up=False)), "leaf1", "spine1") == ("1 of 2 up", "hot")
    slow = one(changed(fine, "leaf1", 3, bits_per_second=FAST // 4))
    assert of(slow, "leaf1", "spine1") == ("2 up, 1 slow", "warm")
    assert of(slow, "leaf1", "spine2") == ("2 up", "calm")
    # Whichever end counts them.
    for name, number in (("leaf2", 6), ("spine2", 5)):
        errors = cable(0, "", 0, errors=12).counts
        told = of(one(changed(fine, name, number, counts=errors)), "leaf2", "spine2")
        assert told == ("2 up, 12 errors", "warm")


@pytest.mark.parametrize(("more", "said"), [
    ({}, "up"), ({"up": False}, "down"), ({"bits_per_second": FAST - 1}, "slow"),
    ({"errors": 1}, "1 error"), ({"errors": 7, "bits_per_second": 1}, "slow, 7 errors"),
])  # fmt: skip
def test_of_one_cable_a_word_is_enough(more: dict[str, object], said: str) -> None:
    (alone,) = large(1, 1).cables["leaf1", "spine1"]
    assert words([replace(alone, **{"up": True, **more})]) == said  # type: ignore[arg-type]


def test_what_nobody_counted_is_none_and_a_counter_that_began_again_counts_nothing() -> None:
    fine = changed(changed(two_by_two(), "leaf1", 3, counts=()), "spine1", 2, counts=())
    assert one(fine).cables["leaf1", "spine1"][0].errors is None
    fell = (ErrorCount(at=NOW - HOUR, symbol_errors=9), ErrorCount(at=NOW, symbol_errors=2))
    assert one(changed(fine, "leaf1", 3, counts=fell)).cables["leaf1", "spine1"][0].errors == 0


def test_cables_of_a_switch_that_does_not_answer_are_not_up() -> None:
    fine = two_by_two()
    found = one([replace(fine[0], lost_at=NOW - HOUR), *fine[1:]])
    assert found.lost == {"leaf1"}
    assert of(found, "leaf1", "spine2") == ("0 of 2 up", "hot")
    assert of(found, "leaf2", "spine2") == ("2 up", "calm")
    told = json.dumps(fabric([found]), ensure_ascii=False)
    assert " does not answer: its " in told
    assert "→" not in told  # its cables are not named one by one


@pytest.mark.parametrize(("seconds", "is_shown"), [(899, True), (900, False)])
def test_of_what_was_read_long_ago_nothing_is_shown(seconds: int, is_shown: bool) -> None:
    later = NOW + timedelta(seconds=seconds)
    assert bool(wirings(two_by_two(), later)) is is_shown


def test_switches_that_are_cabled_to_hosts_alone_make_no_matrix() -> None:
    assert wirings([switch("leaf1", host(1, "n1")), switch("leaf2", host(1, "n2"))], NOW) == []
    assert wirings([], NOW) == []


def test_clusters_are_shown_apart_and_named() -> None:
    found = wirings([*two_by_two(), *two_by_two("other")], NOW)
    assert [it.cluster for it in found] == ["lab", "other"]
    assert " other, 8 cables between 2 leaves and 2 spines" in json.dumps(fabric(found))
    assert " lab, 8 cables" not in json.dumps(fabric(found[:1]))


def test_every_cable_in_trouble_is_named_by_both_ends() -> None:
    slow = changed(two_by_two(), "leaf1", 3, bits_per_second=FAST // 4)
    found = one(changed(slow, "leaf2", 6, up=False))
    told = json.dumps(fabric([found]), ensure_ascii=False)
    for name, port, trouble in (
        ("leaf1 port 3 → spine1 port 2", ("leaf1", "3"), "100 of 400 Gbit/s"),
        ("leaf2 port 6 → spine2 port 5", ("leaf2", "6"), "down"),
    ):
        node, number = port
        end = Subject(cluster="lab", node=node, device=SWITCH_DEVICE, port=number)
        assert f'["a", {{"href": "{link_page(end)}"}}, "{name}"], ": {trouble}"' in told
    assert "leaf2 port 5" not in told


def test_each_leaf_and_each_spine_leads_to_its_page() -> None:
    told = json.dumps(fabric([one(two_by_two())]))
    for name in ("leaf1", "leaf2", "spine1", "spine2"):
        # In the table, and in the drawing.
        assert told.count(f'"{switch_page("lab", name)}"') == 2
    dark = replace(two_by_two()[0], lost_at=NOW - HOUR)
    lost = json.dumps(fabric([one([dark, *two_by_two()[1:]])]))
    assert lost.count(f'"{switch_page("lab", "leaf1")}"') == 3


def large(leaves: int, spines: int) -> Wiring:
    """A fabric with one cable per pair, of which the last leaf's first is down."""
    names = [f"leaf{n}" for n in range(1, leaves + 1)]
    cables = {
        (leaf, f"spine{n}"): [
            Cable(
                leaf=leaf,
                leaf_port=str(n),
                spine=f"spine{n}",
                spine_port="",
                up=leaf != names[-1],
                bits_per_second=FAST,
                best_bits_per_second=FAST,
                errors=None,
            )
        ]
        for leaf in names
        for n in range(1, spines + 1)
    }
    return Wiring(
        cluster="lab",
        at=NOW,
        leaves=names,
        spines=[f"spine{n}" for n in range(1, spines + 1)],
        hosts=dict.fromkeys(names, 32),
        lost=frozenset(),
        cables=cables,
    )


@pytest.mark.parametrize(
    ("leaves", "is_drawn"), [(MOST_DRAWN // 4, True), (MOST_DRAWN // 4 + 1, False)]
)
def test_up_to_64_cables_are_drawn(leaves: int, is_drawn: bool) -> None:
    told = json.dumps(fabric([large(leaves, 4)]))
    assert ('"svg"' in told) is is_drawn
    assert told.count('"line"') == (leaves * 4 if is_drawn else 0)


def test_of_more_leaves_than_are_shown_the_worst_are() -> None:
    told = json.dumps(fabric([large(MOST_LEAVES + 10, 2)]))
    assert f'"leaf{MOST_LEAVES + 10}"' in told
    assert f'"leaf{MOST_LEAVES + 9}"' not in told
    assert '"10 calmer leaves not shown."' in told
    assert "not shown" not in json.dumps(fabric([large(MOST_LEAVES, 2)]))
    assert '"1 spine not shown."' in json.dumps(fabric([large(2, MOST_SPINES + 1)]))
