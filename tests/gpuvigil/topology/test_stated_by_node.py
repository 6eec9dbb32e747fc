"""What files say of one node's ports: without looking at others, and after what the node itself heard."""

from dataclasses import replace

import pytest

from gpuvigil.model import Inventory
from gpuvigil.topology import Files, Imported, Source, Wire
from gpuvigil.topology.model import Placed
from tests.gpuvigil.topology.fabrics import inventory, port

FILE = Source.FILE


def wire(node: str, device: str = "mlx5_0", switch: str = "leaf1", at: str | None = None) -> Wire:
    return Wire(node=node, device=device, switch=switch, switch_port=at, source=FILE)


def at(node: Inventory) -> list[tuple[str, str | None, str | None]]:
    return [(it.device, it.switch, it.switch_port) for it in node.ports]


@pytest.mark.parametrize("name", ["n1", "n1.example.org", "N1"])
def test_a_port_that_heard_of_no_switch_is_at_the_one_that_a_file_names(name: str) -> None:
    files = Files([Imported(wires=(wire(name, at="swp7"), wire("n2", switch="leaf2")))])
    node = inventory("n1", [port("mlx5_0"), port("mlx5_1")])
    assert at(files.completed(node)) == [("mlx5_0", "leaf1", "swp7"), ("mlx5_1", None, None)]


def test_what_a_port_heard_itself_counts_more() -> None:
    heard = replace(port("mlx5_0"), switch="leaf9", switch_port="swp1")
    node = inventory("n1", [heard])
    assert Files([Imported(wires=(wire("n1"),))]).completed(node) == node


@pytest.mark.parametrize(("ports", "switch"), [(1, "leaf3"), (2, None)])
def test_a_node_s_place_is_that_of_its_only_port(ports: int, switch: str | None) -> None:
    files = Files([Imported(places=(Placed(node="n1", place="leaf3", source=Source.SLURM),))])
    node = inventory("n1", [port(f"mlx5_{it}") for it in range(ports)])
    assert {it.switch for it in files.completed(node).ports} == {switch}


def test_a_node_that_no_file_names_stays_as_it_is() -> None:
    node = inventory("n3", [port("mlx5_0")])
    assert Files([Imported(wires=(wire("n1"),))]).completed(node) is node
    assert Files().completed(node) is node
