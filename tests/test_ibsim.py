"""Whatever is done to the simulated subnet shows in the tools that a site reads it with."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ibsim import PORTS, PROGRAMS, Ibsim
from tests.polling import wait_until

pytestmark = [pytest.mark.server, pytest.mark.site]

SECONDS = 10.0


@pytest.fixture(scope="module", autouse=True)
def programs(needs: Callable[[str, str], str]) -> None:
    for program in PROGRAMS:
        needs(program, "apt-get install ibsim-utils opensm infiniband-diags")


@pytest.fixture(scope="module")
def fabric(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ibsim]:
    """One for all tests of this file; each leaves it as it was."""
    with Ibsim(tmp_path_factory.mktemp("ib")) as fabric:
        yield fabric


def link(fabric: Ibsim, name: str, port: int) -> str:
    """What iblinkinfo says of a port, if it does: width, speed, state and far end."""
    line = rf'^0x[0-9a-f]+ " *{name}" +[0-9]+ +{port}\[ *\] ==(.*)$'
    found = re.search(line, fabric.links(), re.MULTILINE)
    return found[1] if found else ""


def becomes(fabric: Ibsim, name: str, port: int, pattern: str) -> None:
    wait_until(
        f"{name} {port} is {pattern}",
        lambda: re.search(pattern, link(fabric, name, port)),
        SECONDS,
    )


def shows(fabric: Ibsim, pattern: str) -> None:
    """A tool whose question is lost says nothing, and is asked again."""
    asked = ("ibqueryerrors", "--data")
    wait_until(pattern, lambda: re.search(pattern, fabric.tool(*asked)), SECONDS)


def test_hosts_are_at_the_leaves_of_their_pods_by_their_rails(
    tmp_path: Path, fabric: Ibsim
) -> None:
    assert fabric.ports_of("host01 mlx5_2") == {1: ("leaf3", 1)}
    assert fabric.ports_of("mgmt mlx5_0") == {1: ("leaf1", 1)}
    with Ibsim(tmp_path / "other", leaves=4, spines=3, hosts=4, rails=2) as other:
        for n, leaves in {1: (1, 2), 2: (1, 2), 3: (3, 4), 4: (3, 4)}.items():
            for rail, leaf in enumerate(leaves):
                becomes(other, other.host(n, rail), 1, f'Active.*"{other.leaf(leaf)}"')
        assert len(other.ports_of(other.spine(3))) == 4
        assert "host05" in fabric.links()
        assert "host05" not in other.links()


def test_a_cable_that_is_cut_is_down_until_it_is_joined(fabric: Ibsim) -> None:
    port = fabric.port_to("leaf2", "spine1")
    fabric.cut("leaf2", port)
    becomes(fabric, "leaf2", port, "Down/")
    becomes(fabric, *fabric.ports_of("leaf2")[port], "Down/")
    fabric.join("leaf2", port)
    becomes(fabric, "leaf2", port, 'Active/.*"spine1"')


def test_a_leaf_without_cables_is_gone_with_its_hosts(fabric: Ibsim) -> None:
    fabric.cut("leaf3")
    becomes(fabric, "spine1", fabric.port_to("spine1", "leaf3"), "Down/")
    found = fabric.links()
    assert '"leaf3"' not in found
    assert "mlx5_2" not in found
    fabric.join("leaf3")
    becomes(fabric, fabric.host(8, 2), 1, 'Active/.*"leaf3"')


def test_cables_are_swapped_and_can_be_cut_then(fabric: Ibsim) -> None:
    leaf1 = ("leaf1", fabric.port_to("leaf1", "host05 mlx5_0"))
    leaf2 = ("leaf2", fabric.port_to("leaf2", "host05 mlx5_1"))
    fabric.swap(leaf1, leaf2)
    becomes(fabric, *leaf1, 'Active/.*"host05 mlx5_1"')
    becomes(fabric, "host05 mlx5_0", 1, '4X +53.125 Gbps Active/.*"leaf2"')
    assert fabric.ports_of("host05 mlx5_0") == {1: leaf2}
    fabric.cut("host05 mlx5_0")
    becomes(fabric, *leaf2, "Down/")
    fabric.join("host05 mlx5_0")
    becomes(fabric, *leaf2, 'Active/.*"host05 mlx5_0"')
    fabric.swap(("host05 mlx5_0", 1), ("host05 mlx5_1", 1))
    becomes(fabric, *leaf1, 'Active/.*"host05 mlx5_0"')
    becomes(fabric, *leaf2, 'Active/.*"host05 mlx5_1"')


def test_errors_are_counted(fabric: Ibsim) -> None:
    fabric.errors("leaf2", 3, count=12)
    fabric.errors("host02 mlx5_1", 1, "PortXmitWait", 777)
    fabric.errors("leaf2", 3, "PortCountersExtended.PortXmitData", 10**12)
    shows(fabric, r"port 3: \[SymbolErrorCounter == 12\] \[PortXmitData == 10000000")
    shows(fabric, r'"host02 mlx5_1"\n.*port 1: \[PortXmitWait == 777\]')
    with pytest.raises(AssertionError, match="NoSuch"):
        fabric.errors("leaf2", 3, "NoSuch")


@pytest.mark.parametrize("end", [("leaf4", PORTS - 2), ("host03 mlx5_1", 1)])
def test_a_link_loses_lanes_and_stays_up(fabric: Ibsim, end: tuple[str, int]) -> None:
    far = fabric.ports_of(end[0])[end[1]]
    fabric.width(*end, 1)
    for it in (end, far):
        becomes(fabric, *it, r"1X +53.125 Gbps Active/")
    fabric.width(*end, 4)
    for it in (end, far):
        becomes(fabric, *it, r"4X +53.125 Gbps Active/")


def test_tools_of_others_run_on_it_with_its_environment(fabric: Ibsim) -> None:
    done = subprocess.run(
        ["ibnetdiscover", "-p"],
        cwd=fabric.folder,
        env={**os.environ, **fabric.environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert "( 'host08 mlx5_3' - 'leaf4' )" in done.stdout


def test_who_asks_a_dead_simulator_waits(tmp_path: Path) -> None:
    with Ibsim(tmp_path / "ib", leaves=1, rails=1, hosts=1) as fabric:
        fabric.kill()
        with pytest.raises(subprocess.TimeoutExpired):
            fabric.tool("iblinkinfo", "-l", timeout=1)
