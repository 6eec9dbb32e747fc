"""One name for a link, whichever of its ends asks."""

from gpuvigil.model import SWITCH_DEVICE, Subject
from gpuvigil.topology.link_names import link_name, port_name, switch_link_name, switch_port_name


def test_a_link_has_one_name_with_the_hosts_end_first() -> None:
    host = Subject(cluster="c", node="n1", device="mlx5_0", port="1")
    second = Subject(cluster="c", node="n1", device="mlx4_0", port="2")
    leaf = Subject(cluster="c", node="leaf1", device=SWITCH_DEVICE, port="12")
    whole = Subject(cluster="c", node="leaf1", device=SWITCH_DEVICE, port="0")
    assert link_name(port_name(host), port_name(leaf)) == "n1 mlx5_0 → leaf1 port 12"
    assert link_name(port_name(second), switch_port_name("leaf1", None)) == "n1 mlx4_0/2 → leaf1"
    assert link_name(port_name(host)) == "n1 mlx5_0"
    assert port_name(whole) == "leaf1"


def test_a_cable_between_switches_has_one_name_from_either_end() -> None:
    ends = ("leaf10 port 4", "leaf9 port 1")
    assert switch_link_name(*ends) == switch_link_name(*reversed(ends))
    assert switch_link_name(*ends) == "leaf9 port 1 → leaf10 port 4"
