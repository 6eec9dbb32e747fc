"""One hub for the tests that leave it as they found it, and an embedded store and issued tokens for each that asks."""

from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from gpuvigil.config import HubSettings
from hub.embedded import Embedded
from hub.records import IssuedTokens, Transactions, open_records
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


@pytest.fixture
def now() -> list[datetime]:
    return [datetime(2026, 1, 31, 12, tzinfo=timezone.utc)]


DATABASES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.server)]


@pytest.fixture(params=DATABASES)
def transactions(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Transactions]:
    postgresql = request.param == "postgresql"
    url = request.getfixturevalue("postgresql").database() if postgresql else ""
    engine = open_records(HubSettings(data_directory=tmp_path, records_url=url))
    yield Transactions(engine)
    engine.dispose()


@pytest.fixture
def issued_tokens(transactions: Transactions, now: list[datetime]) -> IssuedTokens:
    return IssuedTokens(transactions, lambda: now[0])
