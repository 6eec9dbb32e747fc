"""`gpuvigil check` on a machine without a free core: it may not know, and it invents nothing."""

import random
from pathlib import Path

import pytest

from tests.collector.agent import Agent
from tests.collector.check.busy import GPUS, play
from tests.collector.check.node import Node
from tests.nvml_fake import FakeDriver

# It takes every core from what runs beside it.
pytestmark = [pytest.mark.server, pytest.mark.site, pytest.mark.timeout(300)]


@pytest.fixture
def node(tmp_path: Path, driver: FakeDriver) -> Node:
    return Node(tmp_path, driver, gpus=GPUS)


def test_without_a_collector_a_busy_machine_is_no_fault_and_a_fault_is_not_denied(
    node: Node,
) -> None:
    tally = play(node, None, 6, random.Random(1), ["well", "well", "all hangs"])
    assert tally.wrong == []
    assert tally.runs == 6


def test_with_a_collector_a_busy_machine_hides_no_fault(node: Node, agent: Agent) -> None:
    beside(node, agent)
    tally = play(node, agent, 5, random.Random(2), ["well", "lost"])
    assert tally.wrong == []
    # Who gives up after seconds may do so before Python has started.
    assert not tally.unknown_by.keys() & {"person", "program", "nagios"}


def beside(node: Node, agent: Agent) -> None:
    """A collector on the same node, at the pace that is shipped."""
    agent.settings |= {
        "spool_directory": str(node.spool),
        "sysfs_root": str(node.sysfs),
        "kernel_log": str(node.kernel_log),
        "tick_seconds": 2.0,
        "slow_tick_seconds": 10.0,
        "driver_timeout_seconds": 2.0,
    }
    agent.environment = node.driver.environment()
