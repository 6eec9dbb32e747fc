"""Which neighbours of switches are hosts, in fabrics of several forms."""

from datetime import datetime, timezone

from gpuvigil.model import Subject, Switch, SwitchPort
from gpuvigil.model.switch_hosts import hosts_by_switch

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def hosts(fabric: dict[str, str]) -> dict[str, frozenset[str]]:
    """Of switches with their neighbours, by name."""
    switches = [
        Switch(
            subject=Subject(cluster="c", node=name),
            at=NOON,
            guid=name,
            ports=tuple(
                SwitchPort(
                    number=number,
                    up=True,
                    since=NOON,
                    name=f"Ethernet{number}",
                    peer=peer if peer in fabric else f"{peer} eth{number}",
                    at_switch=peer in fabric,
                )
                for number, peer in enumerate(peers.split())
            ),
        )
        for name, peers in fabric.items()
    ]
    found = hosts_by_switch(switches)
    return {name: found["c", name] for name in fabric}


RAILS = {f"leaf{n}": "a b c d spine1 spine2" for n in range(8)}
LEAVES = " ".join(RAILS)
ALL = frozenset("abcd")


def test_a_host_on_every_rail_is_one() -> None:
    found = hosts({**RAILS, "spine1": LEAVES, "spine2": LEAVES})
    assert found == {**dict.fromkeys(RAILS, ALL), "spine1": set(), "spine2": set()}
    assert hosts(dict.fromkeys(("leaf1", "leaf2"), "a b")) == {
        "leaf1": {"a", "b"},
        "leaf2": {"a", "b"},
    }


def test_what_spines_see_like_their_leaves_is_no_host_anywhere() -> None:
    managed = {name: f"{peers} oob" for name, peers in RAILS.items()}
    found = hosts({**managed, "spine1": f"{LEAVES} oob", "spine2": f"{LEAVES} oob"})
    assert found == {**dict.fromkeys(RAILS, ALL), "spine1": set(), "spine2": set()}
    # The same where hosts say nothing by LLDP.
    silent = dict.fromkeys(RAILS, "spine1 oob")
    assert hosts({**silent, "spine1": f"{LEAVES} oob"}) == dict.fromkeys(
        [*RAILS, "spine1"], frozenset()
    )


def test_what_spines_alone_see_is_no_host_where_leaves_have_more() -> None:
    found = hosts({**RAILS, "spine1": f"{LEAVES} oob9", "spine2": f"{LEAVES} oob9 router"})
    assert (found["spine1"], found["spine2"]) == (frozenset(), frozenset())


def test_a_leaf_with_one_host_and_leaves_cabled_to_each_other_have_hosts() -> None:
    found = hosts({**RAILS, "leaf0": "a spine1 spine2", "spine1": LEAVES, "spine2": LEAVES})
    assert found["leaf0"] == {"a"}
    pair = {"leaf1": "a b leaf2 spine1", "leaf2": "a b leaf1 spine1", "spine1": "leaf1 leaf2"}
    assert hosts(pair) == {"leaf1": {"a", "b"}, "leaf2": {"a", "b"}, "spine1": set()}
    mesh = {n: "a b c d " + " ".join({"1", "2", "3"} - {n}) for n in "123"}
    assert hosts(mesh) == dict.fromkeys("123", ALL)
