"""One hub for the tests that leave it as they found it, and an embedded store for each that asks."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hub.embedded import Embedded
from tests.servers import HubProcess


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub"), {"body_bytes": 1_000_000}) as process:
        yield process


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "telemetry.duckdb"


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[[], Embedded]]:
    stores: list[Embedded] = []

    def open_again() -> Embedded:
        for store in stores:
            store.close()
        stores.append(Embedded(path, 256 * 1024 * 1024, 1))
        return stores[-1]

    yield open_again
    for store in stores:
        store.close()
