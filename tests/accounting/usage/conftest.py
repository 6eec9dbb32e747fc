"""Hubs for tests of usage."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import HubProcess, QuickHub

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """One for all: a question of usage is of one cluster, and each test has its own."""
    with QuickHub(tmp_path_factory.mktemp("usage") / "hub") as process:
        yield process


@pytest.fixture
def cluster() -> str:
    """A cluster of this test's own."""
    return f"c{next(_NUMBERS)}"


@pytest.fixture
def empty_hub(tmp_path: Path) -> Iterator[HubProcess]:
    """One that nobody has told anything."""
    with QuickHub(tmp_path / "hub") as process:
        yield process
