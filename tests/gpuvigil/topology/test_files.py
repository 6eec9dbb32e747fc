"""Files about a fabric, in the forms in which sites have them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuvigil.errors import ConfigError
from gpuvigil.topology import Imported, Question, Source, Uplink, Wire, learn, read
from gpuvigil.topology.labels import layers
from gpuvigil.topology.slurm import from_yaml
from tests import ibsim
from tests.gpuvigil.topology.fabrics import inventory, port

CONF = """
# Three switches; keys in any case.
SwitchName=s1 Nodes=n[1-2],n4 LinkSpeed=100
switchname=s2 nodes=n3
SwitchName=top \\
    Switches=s[1-2]  # the upper one
BlockName=b1 Nodes=g[01-02]
BlockName=placeholder
BlockSizes=2,4
"""
YAML = """---
# Slurm 25.05
- topology: tree
  cluster_default: true
  tree:
    switches:
      - switch: s1
        nodes: "n[1-2],n4"
      - switch: s2
        nodes: n3
      - switch: top
        children: s[1-2]
- topology: blocks
  block:
    block_sizes: [2, 4]
    blocks:
    - block: b1
      nodes: 'g[01-02]'
    - block: placeholder
- topology: none
  flat: true
"""
# NDR, which the simulator does not know: a line of a switch as ibnetdiscover writes it.
NDR = """
vendid=0x2c9
Switch\t65 "S-fc6a1c0300a1b200"\t\t# "MF0;rail1-leaf3:MQM9700/U1" enhanced port 0 lid 12 lmc 0
[1]\t"H-a088c20300f00001"[1](a088c20300f00001) \t\t# "gpu07 mlx5_2" lid 40 4xNDR
[33]\t"S-fc6a1c0300a1b300"[1]\t\t# "Quantum Mellanox Technologies" lid 3 4xNDR
[34]\t"S-fc6a1c0300a1b400"[1]\t\t# "Quantum Mellanox Technologies" lid 4 4xNDR
[65]\t"H-fc6a1c0300a1b208"[1](fc6a1c0300a1b208) \t\t# "Mellanox Technologies Aggregation Node" lid 13 4xNDR

Switch\t65 "S-fc6a1c0300a1b300"\t\t# "Quantum Mellanox Technologies" enhanced port 0 lid 3 lmc 0
[1]\t"S-fc6a1c0300a1b200"[33]\t\t# "MF0;rail1-leaf3:MQM9700/U1" lid 12 4xNDR

Switch\t65 "S-fc6a1c0300a1b400"\t\t# "Quantum Mellanox Technologies" enhanced port 0 lid 4 lmc 0
[1]\t"S-fc6a1c0300a1b200"[34]\t\t# "MF0;rail1-leaf3:MQM9700/U1" lid 12 4xNDR

Ca\t1 "H-a088c20300f00001"\t\t# "gpu07 mlx5_2"
[1](a088c20300f00001) \t"S-fc6a1c0300a1b200"[1]\t\t# lid 40 lmc 0 "MF0;rail1-leaf3:MQM9700/U1" lid 12 4xNDR

Ca\t1 "H-fc6a1c0300a1b208"\t\t# "Mellanox Technologies Aggregation Node"
[1](fc6a1c0300a1b208) \t"S-fc6a1c0300a1b200"[65]\t\t# lid 13 lmc 0 "MF0;rail1-leaf3:MQM9700/U1" lid 12 4xNDR
"""


def written(folder: Path, name: str, text: str) -> Imported:
    (folder / name).write_text(text)
    return read(folder / name)


@pytest.mark.parametrize(
    ("name", "text"),
    [("topology.conf", CONF), ("conf.txt", CONF), ("topology.yaml", YAML), ("yaml.txt", YAML)],
)
def test_slurm_says_which_switch_or_block_a_node_is_in(
    tmp_path: Path, name: str, text: str
) -> None:
    found = written(tmp_path, name, text)
    assert {it.node: it.place for it in found.places} == {
        "n1": "s1",
        "n2": "s1",
        "n4": "s1",
        "n3": "s2",
        "g01": "b1",
        "g02": "b1",
    }
    assert {(it.lower, it.upper) for it in found.uplinks} == {("s1", "top"), ("s2", "top")}
    assert {it.source for it in found.places} == {Source.SLURM}


def test_ibnetdiscover_names_ports_and_each_cable_between_switches_once(tmp_path: Path) -> None:
    found = written(tmp_path, "fabric.txt", NDR)
    leaf = "rail1-leaf3"  # a managed switch says more of itself than its name
    assert found.wires == (
        Wire(
            node="gpu07",
            device="mlx5_2",
            port="1",
            switch=leaf,
            switch_port="1",
            source=Source.IBNETDISCOVER,
        ),
    )
    # Two spines that nobody has named are told apart by their GUIDs.
    assert {(it.lower, it.lower_port, it.upper) for it in found.uplinks} == {
        (leaf, "33", "Quantum Mellanox Technologies fc6a1c0300a1b300"),
        (leaf, "34", "Quantum Mellanox Technologies fc6a1c0300a1b400"),
    }


@pytest.mark.server
def test_a_real_subnet_is_read_and_what_is_wrong_with_it_is_named(
    tmp_path: Path, needs: Callable[[str, str], str]
) -> None:
    for program in ibsim.PROGRAMS:
        needs(program, "scripts/install-test-servers")
    cables = {(f"host{h}", f"mlx5_{r}"): f"leaf{r + 1}" for h in range(1, 9) for r in range(3)}
    cables["host5", "mlx5_0"], cables["host5", "mlx5_2"] = "leaf3", "leaf1"
    net = ibsim.netlist([(*port, leaf) for port, leaf in cables.items()], spines=2)
    with ibsim.Subnet(tmp_path / "ib", net) as subnet:
        found = written(tmp_path, "fabric", subnet.run("ibnetdiscover"))
    assert {(it.node, it.device or ""): it.switch for it in found.wires} == cables
    assert {it.switch_port for it in found.wires} == {str(number) for number in range(1, 9)}
    assert {(it.lower, it.lower_port, it.upper, it.upper_port) for it in found.uplinks} == {
        (f"leaf{leaf}", str(64 - spine), f"spine{spine}", str(leaf))
        for leaf in (1, 2, 3)
        for spine in (1, 2)
    }
    nodes = [inventory(f"host{h}", [port(f"mlx5_{r}") for r in range(3)]) for h in range(1, 9)]
    (swapped,) = learn(nodes, found).doubts
    assert (swapped.question, set(swapped.ports)) == (
        Question.SWAPPED,
        {("host5", "mlx5_0"), ("host5", "mlx5_2")},
    )
    uplinks = tuple(it for it in found.uplinks if it.lower != "leaf2")
    doubts = learn(nodes, Imported(wires=found.wires, uplinks=uplinks)).doubts
    assert [it.switches for it in doubts if it.question is Question.NO_UPLINK] == [("leaf2",)]


def test_labels_say_the_nearest_switch_and_what_is_above_it(tmp_path: Path) -> None:
    aws = {f"topology.k8s.aws/network-node-layer-{n}": f"nn-{n}" for n in (1, 2, 3)}
    items = [
        {"metadata": {"name": "a1", "labels": {"topology.kubernetes.io/zone": "z", **aws}}},
        {"metadata": {"name": "a2"}},
        {"metadata": {"name": "a3", "labels": {"nvidia.com/gpu.clique": "uuid.7"}}},
    ]
    found = written(tmp_path, "nodes.json", json.dumps({"kind": "List", "items": items}))
    assert {it.node: it.place for it in found.places} == {"a1": "nn-3", "a3": "uuid.7"}
    assert [(it.lower, it.upper) for it in found.uplinks] == [("nn-3", "nn-2"), ("nn-2", "nn-1")]
    graph = {"instances": [{"id": "i-1", "network_layers": ["leaf", "spine"], "labels": {}}]}
    found = written(tmp_path, "graph", json.dumps(graph))
    assert [(it.node, it.place) for it in found.places] == [("i-1", "leaf")]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"fabric.topograph.run/tier-1": "spine", "fabric.topograph.run/tier-0": "leaf"}, ["leaf", "spine"]),
        ({"network.topology.nvidia.com/tier-0": "leaf"}, ["leaf"]),
        (
            {
                "cloud.google.com/gce-topology-host": "h",
                "cloud.google.com/gce-topology-subblock": "s",
                "cloud.google.com/gce-topology-block": "b",
            },
            ["s", "b"],
        ),
        ({"oci.oraclecloud.com/rdma.local_block_id": "l"}, ["l"]),
        ({"topology.kubernetes.io/zone": "z"}, []),
    ],
)  # fmt: skip
def test_each_provider_has_labels_of_its_own(labels: dict[str, str], expected: list[str]) -> None:
    assert layers(labels) == expected


def test_a_file_of_ones_own_says_all_that_there_is_to_say(tmp_path: Path) -> None:
    text = """
    [[ports]]
    nodes = "n[1-2]"
    device = "mlx5_0"
    switch = "leaf1"
    rail = "0"

    [[switches]]
    names = "leaf[1-2]"
    uplinks = "spine1,spine2"
    """
    found = written(tmp_path, "fabric.toml", text)
    assert found.wires[1] == Wire(
        node="n2", device="mlx5_0", port="1", switch="leaf1", rail="0", source=Source.FILE
    )
    assert Uplink(lower="leaf2", upper="spine1", source=Source.FILE) in found.uplinks
    assert len(found.uplinks) == 4


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.toml", "[[port]]", "port is unknown: known are ports and switches"),
        ("a.toml", "[[ports]]\nnodes = 'n1'", r"\[\[ports\]\] number 1: device is missing"),
        ("a.toml", "[[ports]]\nnode = 'n1'", "node is unknown"),
        ("a.toml", "ports = 1", "must be a list of tables"),
        ("a.json", "[]", "neither nodes of Kubernetes nor a graph of topograph"),
        ("a.json", '{"items": [{}]}', "'name'"),
        ("a.yaml", "a: 1", "a list of topologies"),
        ("a.yaml", "- tree: {}", "says nothing of any port or switch"),
        ("a.yaml", "- tree:\n    switches:\n      - nodes: n1", "has no switch"),
        ("a.conf", "NodeName=n1", "says nothing of any port or switch"),
        ("a.txt", "hello", "is none of the forms that are read"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        written(tmp_path, name, text)
    assert str(tmp_path / name) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*none\.conf: No such file"):
        read(tmp_path / "none.conf")
    (tmp_path / "a.conf").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read(tmp_path / "a.conf")


@pytest.mark.parametrize("text", ["\ta: 1", "a: 'b", "a: [1"])
def test_what_is_no_yaml_is_refused_by_its_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"line \d"):
        from_yaml(text)
