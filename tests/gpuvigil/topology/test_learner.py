"""Where each port is and what does not fit, held against fabrics of which the truth is known."""

import random
from collections import Counter

import pytest

from gpuvigil.topology import Doubt, Fact, Imported, Question, Source, Topology, Uplink, Wire, learn
from gpuvigil.topology.model import Placed
from tests.gpuvigil.topology.fabrics import Fabric, draw, inventory, port, went_down

FABRICS = 100
NOTHING = Imported()
MISWIRED = {Question.SWAPPED, Question.WRONG_RAIL}


def scored(fabric: Fabric, learned: Topology) -> Counter[str]:
    """What was said of plugged ports, and how much of it is right."""
    score = Counter[str]()
    for link in learned.links:
        key = link.node, link.device
        if link.role != "fabric":
            continue
        score["plugged"] += key in fabric.leaf
        if link.switch is not None:
            kind = "told" if link.switch.source is Source.LLDP else "inferred"
            score[kind] += 1
            score[f"{kind} right"] += link.switch.value == fabric.leaf.get(key)
        if link.rail is not None and key in fabric.rail:
            score["rails"] += 1
            score["rails right"] += link.rail.value == fabric.rail[key]
    return score


@pytest.mark.slow
def test_links_and_rails_of_100_random_fabrics_are_learned_and_a_swapped_cable_is_named() -> None:
    score, named, wrongly = Counter[str](), 0, 0
    for seed in range(FABRICS):
        fabric = draw(seed)
        before = [it for it in learn(fabric.inventories).doubts if it.question in MISWIRED]
        wrongly += len(before)
        swapped = fabric.swap(random.Random(seed))
        learned = learn(fabric.inventories)
        score += scored(fabric, learned)
        found = {frozenset(it.ports) for it in learned.doubts if it.question is Question.SWAPPED}
        named += frozenset(swapped) in found
    assert score["told right"] == score["told"] > 15_000
    # Of a silent host nobody can know that its driver counts its ports otherwise than its peers'.
    assert score["inferred right"] >= 0.97 * score["inferred"] > 500
    right, links = (score[f"told{it}"] + score[f"inferred{it}"] for it in (" right", ""))
    assert right >= 0.99 * links
    assert score["rails right"] >= 0.99 * score["rails"] > 0.98 * score["plugged"]
    assert named >= 95
    assert wrongly == 0


def rail_optimised(hosts: int, *leaves: str, prefix: str = "n") -> dict[str, dict[str, str]]:
    """Hosts by name with the leaf of each of their devices."""
    return {
        f"{prefix}{n}": {f"mlx5_{rail}": leaf for rail, leaf in enumerate(leaves)}
        for n in range(hosts)
    }


def learned(
    hosts: dict[str, dict[str, str]], imported: Imported = NOTHING, **racks: str
) -> Topology:
    nodes = [
        inventory(node, [port(*it) for it in at.items()], racks.get(node))
        for node, at in hosts.items()
    ]
    return learn(nodes, imported)


def texts(topology: Topology, question: Question) -> list[str]:
    return [it.text for it in topology.doubts if it.question is question]


def at(topology: Topology, node: str, device: str) -> Fact | None:
    return next(it.switch for it in topology.links if (it.node, it.device) == (node, device))


def test_two_cables_of_one_host_are_swapped() -> None:
    hosts = rail_optimised(6, "a", "b", "c")
    hosts["n3"] |= {"mlx5_0": "b", "mlx5_1": "a"}
    assert learned(hosts).doubts == (
        Doubt(
            question=Question.SWAPPED,
            text=(
                "n3 mlx5_0 and mlx5_1 look swapped: mlx5_0 is at b, where mlx5_1 belongs, and the"
                " other way round (as on 5 of 6 hosts). Swap the two cables back."
            ),
            ports=(("n3", "mlx5_0"), ("n3", "mlx5_1")),
            switches=("b", "a"),
            rails=("mlx5_1", "mlx5_0"),
            basis="as on 5 of 6 hosts",
        ),
    )


def test_cables_of_two_hosts_are_swapped_between_pods() -> None:
    hosts = rail_optimised(6, "a", "b") | rail_optimised(6, "x", "y", prefix="m")
    hosts["n3"]["mlx5_0"], hosts["m2"]["mlx5_0"] = "x", "a"
    # With two rails half of a host's cables say one pod and half the other: its rack decides.
    racks = {node: node[0] for node in hosts}
    (doubt,) = learned(hosts, NOTHING, **racks).doubts
    assert (doubt.question, set(doubt.ports)) == (
        Question.SWAPPED,
        {("n3", "mlx5_0"), ("m2", "mlx5_0")},
    )


def test_one_cable_is_in_the_wrong_rail() -> None:
    hosts = rail_optimised(6, "a", "b", "c")
    hosts["n3"] |= {"mlx5_0": "b"}
    assert texts(learned(hosts), Question.WRONG_RAIL) == [
        "n3 mlx5_0 is at b and belongs at a (as on 5 of 6 hosts). Move its cable."
    ]
    # Of four hosts nobody knows who is right.
    few = {node: hosts[node] for node in ("n0", "n1", "n2", "n3")}
    assert learned(few).doubts == ()


def test_hosts_that_are_numbered_otherwise_are_not_miswired() -> None:
    hosts = rail_optimised(9, "a", "b", "c", "d")
    hosts["n3"] = {"mlx5_0": "d", "mlx5_1": "a", "mlx5_2": "b", "mlx5_3": "c"}
    found = learned(hosts)
    assert found.doubts == ()
    rails = {it.device: it.rail.value for it in found.links if it.node == "n3" and it.rail}
    assert rails == {"mlx5_0": "mlx5_3", "mlx5_1": "mlx5_0", "mlx5_2": "mlx5_1", "mlx5_3": "mlx5_2"}


def test_a_silent_port_is_where_its_peers_are_and_one_that_was_never_up_nowhere() -> None:
    hosts = rail_optimised(6, "a", "b", "c")
    nodes = [inventory(node, [port(*it) for it in ports.items()]) for node, ports in hosts.items()]
    silent = [port("mlx5_0", "a"), port("mlx5_1"), port("mlx5_2", was_up=False)]
    found = learn([*nodes, inventory("new", silent)])
    assert at(found, "new", "mlx5_1") == Fact(value="b", source=Source.PEERS)
    assert at(found, "new", "mlx5_2") is None
    assert texts(found, Question.RAIL_MISSING) == [
        "new has 2 of 3 rails, unlike 6 of 7 hosts: mlx5_2 was never up."
    ]


def test_a_silent_host_is_in_the_pod_of_its_rack_or_block_and_else_unknown() -> None:
    hosts = rail_optimised(6, "a", "b") | rail_optimised(6, "x", "y", prefix="m")
    nodes = [
        inventory(node, [port(*it) for it in ports.items()], node[0])
        for node, ports in hosts.items()
    ]
    silent = [port("mlx5_0"), port("mlx5_1")]
    alone = learn([*nodes, inventory("new", silent)])
    assert at(alone, "new", "mlx5_0") is None
    assert all(it.rail is not None for it in alone.links if it.node == "new")
    assert at(learn([*nodes, inventory("new", silent, "m")]), "new", "mlx5_0") == Fact(
        value="x", source=Source.PEERS
    )
    blocks = Imported(
        places=tuple(
            Placed(node=node, place=node[0].replace("n", "b1"), source=Source.SLURM)
            for node in ("n0", "n1", "n2", "new", "m3")
        )
    )
    assert at(learn([*nodes, inventory("new", silent)], blocks), "new", "mlx5_1") == Fact(
        value="b", source=Source.PEERS
    )


def test_a_host_with_one_port_is_at_the_switch_that_slurm_names() -> None:
    slurm = Imported(places=(Placed(node="N1.cluster", place="s1", source=Source.SLURM),))
    two = inventory("n2", [port("mlx5_0"), port("mlx5_1")])
    found = learn([inventory("n1", [port("mlx5_0")]), two], slurm)
    assert at(found, "n1", "mlx5_0") == Fact(value="s1", source=Source.SLURM)
    assert found.places == {"n1": Fact(value="s1", source=Source.SLURM)}


def test_a_host_lacks_a_rail_that_others_have() -> None:
    hosts = rail_optimised(6, "a", "b", "c")
    del hosts["n4"]["mlx5_1"]
    assert texts(learned(hosts), Question.RAIL_MISSING) == [
        "n4 has 2 of 3 rails, unlike 5 of 6 hosts: no port at mlx5_1."
    ]
    # Where hosts differ more than that, each is as it is.
    del hosts["n5"]["mlx5_1"]
    assert learned(hosts).doubts == ()


def test_a_leaf_without_an_uplink_is_named_where_others_have_one() -> None:
    hosts = rail_optimised(6, "a", "b", "c")
    uplinks = [Uplink(lower=leaf, upper="spine", source=Source.FILE) for leaf in ("a", "b")]
    found = learned(hosts, Imported(uplinks=tuple(uplinks)))
    assert texts(found, Question.NO_UPLINK) == [
        "c has ports of nodes and no uplink, unlike 2 other leaves."
    ]
    assert found.uplinks == tuple(uplinks)
    # A file about one leaf of three says nothing of the others.
    assert learned(hosts, Imported(uplinks=tuple(uplinks[:1]))).doubts == ()
    # A file may call switches by less than they call themselves.
    full = {
        node: {it: f"{leaf}.example" for it, leaf in ports.items()} for node, ports in hosts.items()
    }
    assert texts(learned(full, Imported(uplinks=tuple(uplinks))), Question.NO_UPLINK) == [
        "c.example has ports of nodes and no uplink, unlike 2 other leaves."
    ]
    elsewhere = Uplink(lower="z", upper="zz", source=Source.FILE)
    assert learned(hosts, Imported(uplinks=(elsewhere,))).uplinks == ()


def test_sources_that_disagree_are_named_and_the_nearer_is_believed() -> None:
    wires = [
        Wire(node="n0", device="mlx5_0", switch=switch, source=Source.FILE, rail="7")
        for switch in ("A.fab.example", "b")
    ]
    found = learned(rail_optimised(1, "a"), Imported(wires=tuple(wires)))
    assert texts(found, Question.SOURCES) == [
        "n0 mlx5_0: LLDP says a, file says b. The first is believed."
    ]
    assert at(found, "n0", "mlx5_0") == Fact(value="a", source=Source.LLDP)
    assert found.links[0].rail == Fact(value="7", source=Source.FILE)


def test_ports_that_went_down_together_are_at_one_switch() -> None:
    known = [inventory(f"n{n}", [port("mlx5_0", "a")]) for n in range(4)]
    others = [inventory(f"m{n}", [port("mlx5_0", "b")]) for n in range(4)]
    silent = inventory("new", [port("mlx5_0"), port("mlx5_1")])
    downs = [went_down(f"n{n}", "mlx5_0", n / 2) for n in range(4)]
    nodes = [*known, *others, silent]
    fell = learn(nodes, events=[*downs, went_down("new", "mlx5_0", 1.0)])
    assert at(fell, "new", "mlx5_0") == Fact(value="a", source=Source.DOWN_TOGETHER)
    assert at(fell, "new", "mlx5_1") is None
    # Not with half of the switch, not later, and not by a host that lost all that it had.
    assert (
        at(learn(nodes, events=[*downs[:2], went_down("new", "mlx5_0")]), "new", "mlx5_0") is None
    )
    assert (
        at(learn(nodes, events=[*downs, went_down("new", "mlx5_0", 9.0)]), "new", "mlx5_0") is None
    )
    both = [went_down("new", device, 1.0) for device in ("mlx5_0", "mlx5_1")]
    assert at(learn(nodes, events=[*downs, *both]), "new", "mlx5_0") is None
    # Once with one switch and once with the other says nothing.
    later = [went_down(f"m{n}", "mlx5_0", 60.0) for n in range(4)]
    twice = [*downs, *later, went_down("new", "mlx5_0", 1.0), went_down("new", "mlx5_0", 60.0)]
    assert at(learn(nodes, events=twice), "new", "mlx5_0") is None


def test_nothing_is_known_of_nothing() -> None:
    assert learn([]) == Topology(places={})
