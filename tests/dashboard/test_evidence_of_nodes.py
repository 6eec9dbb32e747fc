"""The charts of a node's or a rack's incident hold nodes against nodes: pure."""

from datetime import timedelta

import numpy as np

from dashboard.device.grid import Grid
from dashboard.device.hub_queries import OFFSETS, Numbers
from dashboard.incidents import evidence_chart
from dashboard.incidents.evidence_chart import NodeNumbers
from dashboard.incidents.evidence_nodes import MOST_NODES, nodes_of_rack, peers
from gpuvigil.model import Group, GroupKind

from .scene import NOON, inventory, node
from .test_incident_places import about, fleet

MINUTE = timedelta(minutes=1)


def test_a_node_is_held_against_its_rack_and_a_rack_against_the_others() -> None:
    known = fleet()
    assert [it.node for it in peers(about("n4"), "", known)] == ["n5", "n6", "n7"]
    assert [it.node for it in peers(about("n4", "n5"), "", known)] == ["n6", "n7"]
    rack = about("n4", "n5", group=Group(GroupKind.RACK, "r1"))
    others = {it.node for it in peers(rack, "r1", known)}
    assert len(others) == MOST_NODES
    assert not others & {"n4", "n5", "n6", "n7"}
    assert [it.node for it in nodes_of_rack("lab", "r1", known)] == ["n4", "n5", "n6", "n7"]
    # Alone in its rack, or without one, a node is held against the cluster.
    alone = fleet(racks=4, nodes=1)
    assert [it.node for it in peers(about("n1"), "", alone)] == ["n0", "n2", "n3"]
    assert peers(about("unknown"), "", known) == ()


def test_nodes_with_other_gpus_or_of_another_cluster_are_no_peers() -> None:
    other = inventory(node("n90", "lab"), gpus=4, rack="r1")
    elsewhere = inventory(node("n91", "other"), rack="r1")
    known = {**fleet(), other.subject: other, elsewhere.subject: elsewhere}
    assert [it.node for it in peers(about("n4"), "", known)] == ["n5", "n6", "n7"]
    assert len(nodes_of_rack("lab", "r1", known)) == 5


GRID = Grid(start=NOON - 10 * MINUTE, step=MINUTE, count=20)


def numbers(was: float, now: float, load: float = 1.0) -> Numbers:
    """A node with two GPUs whose temperature was that before noon and this from then on."""
    gpus = {
        name: {
            "temperature_celsius": np.array([was] * 11 + [now] * 9),
            OFFSETS: np.full(20, 30.0),
        }
        for name in ("A", "B")
    }
    return Numbers(grid=GRID, gpus=gpus, node={"load_average": np.full(20, load)})


def test_a_warm_rack_is_drawn_beside_the_others() -> None:
    warm = NodeNumbers(
        own=[numbers(60.0, 80.0), numbers(62.0, 82.0)],
        peers=[numbers(60.0, 61.0)],
        own_name="median of its nodes",
        peers_name="other racks",
    )
    found = evidence_chart.charts_of_nodes(warm, NOON)
    (line,) = evidence_chart.summary_lines(found, GRID, NOON)
    assert line == "Temperature of its GPUs: 61 °C → 81 °C, peers 61 °C"
    assert [it.name for it in found[0].curves] == ["median of other racks", "median of its GPUs"]


def test_that_nodes_do_other_work_is_no_evidence() -> None:
    """A node whose load is another's tenfold, or that stays as it is while others warm, shows nothing by it."""
    still = NodeNumbers(own=[numbers(60.0, 60.0, 90.0)], peers=[numbers(40.0, 70.0, 9.0)])
    alone = NodeNumbers(own=still.own)
    # Nothing moved: what there is, in its usual order.
    for nodes in (still, alone):
        keys = [it.key for it in evidence_chart.charts_of_nodes(nodes, NOON)]
        assert keys == ["temperature", "load_average"]
    moved = NodeNumbers(own=[numbers(60.0, 75.0, 90.0)], peers=still.peers)
    assert [it.key for it in evidence_chart.charts_of_nodes(moved, NOON)] == ["temperature"]
    alike = NodeNumbers(own=[numbers(60.0, 75.0)], peers=[numbers(60.0, 75.0)])
    assert len(evidence_chart.charts_of_nodes(alike, NOON)) == 2
    assert evidence_chart.charts_of_nodes(NodeNumbers(own=()), NOON) == ()
