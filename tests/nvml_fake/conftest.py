"""A fake driver, and a client process that has initialised it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nvml_fake import FakeDriver
from tests.nvml_fake.pynvml_client import Client


@pytest.fixture
def driver(tmp_path: Path, library: Path) -> FakeDriver:
    return FakeDriver(tmp_path, library)


@pytest.fixture
def client(driver: FakeDriver) -> Iterator[Client]:
    client = Client(driver)
    try:
        client.call("nvmlInit")
        yield client
    finally:
        client.close()
