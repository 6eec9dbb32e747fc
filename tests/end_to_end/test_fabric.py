"""What a lost link and a lost leaf become, from the node's files to the webhook, as shipped."""

import time
from collections.abc import Iterator

import pytest

from tests.fabric import Fabric, labels_of, running
from tests.polling import wait_until

pytestmark = pytest.mark.server

# Half of the nodes have one port; all of them lead to one leaf.
NODES = {
    f"node-{n}": ("mlx5_0",) if n <= 4 else ("mlx5_0", "mlx5_1", "mlx5_2") for n in range(1, 9)
}
PORTS = [(node, port) for node, ports in NODES.items() for port in ports]


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    with running(tmp_path_factory.mktemp("fabric"), NODES) as fabric:
        yield fabric


def test_a_port_is_told_once_it_was_down_for_half_a_minute(fabric: Fabric) -> None:
    # By its numbers too, which come every ten seconds, at the next pass.
    assert 30.0 <= fabric.seconds_to_webhook("node-5", "mlx5_1") <= 55.0


def test_a_leaf_that_is_lost_is_one_critical_message(fabric: Fabric) -> None:
    began = fabric.down(*PORTS)
    told = fabric.wait(began, timeout_seconds=60.0)
    assert labels_of(told) == ("switch_down", "critical")
    summary = told.payload["alerts"][0]["annotations"]["summary"]
    assert summary.startswith("Ports of several nodes went down together: node-1, node-2, node-3")
    # Ports that nothing explains would be told by then, one by one.
    wait_until("a minute is over", lambda: time.monotonic() - began > 55.0, 60.0)
    assert [labels_of(one) for one in fabric.told(began)] == [("switch_down", "critical")]
