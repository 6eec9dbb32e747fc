"""A fake driver, and a client process that has initialised it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.nvml_fake import FakeDriver, build
from tests.nvml_fake.pynvml_client import Client


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory, needs: Callable[[str, str], str]) -> Path:
    needs("gcc", "apt-get install gcc")
    return build(tmp_path_factory.mktemp("nvml"))


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
