"""Every backend that keeps the store protocol; the contract runs on each."""

from collections.abc import Iterator
from datetime import datetime, timezone

import pytest

from gpuvigil.store import Store
from gpuvigil.store.hub import HubStore
from gpuvigil.store.memory import MemoryStore
from tests.servers import HubProcess

AFTER_ALL = datetime(2300, 1, 1, tzinfo=timezone.utc)


@pytest.fixture(
    scope="module", params=["memory", pytest.param("embedded", marks=pytest.mark.server)]
)
def backend(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    """A store that keeps what earlier tests wrote."""
    if request.param == "memory":
        yield MemoryStore()
        return
    with HubProcess(tmp_path_factory.mktemp("hub"), {"commit_seconds": 0.001}) as hub:
        yield HubStore(hub.hub())


@pytest.fixture
def store(backend: Store) -> Store:
    """An empty store."""
    backend.forget(AFTER_ALL)
    return backend
