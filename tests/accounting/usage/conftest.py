"""Hubs for tests of usage."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import HubProcess


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    with HubProcess(tmp_path / "hub") as process:
        yield process
