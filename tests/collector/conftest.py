"""A fake driver, a hub-like receiver, and agents as real processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collector.agent import Agent
from tests.collector.receiver import Receiver
from tests.nvml_fake import FakeDriver


@pytest.fixture
def driver(tmp_path: Path, library: Path) -> FakeDriver:
    return FakeDriver(tmp_path / "driver", library, gpus=4)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def agent(tmp_path: Path, receiver: Receiver) -> Iterator[Agent]:
    """An agent that is not started yet, on a node without a driver and without ports."""
    agent = Agent(tmp_path / "agent", receiver.url)
    try:
        yield agent
    finally:
        agent.end()
