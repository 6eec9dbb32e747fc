"""One hub for the tests that leave it as they found it."""

from collections.abc import Iterator

import pytest

from tests.servers import HubProcess


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub"), {"body_bytes": 1_000_000}) as process:
        yield process
