"""The recorder, compiled once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.power_loss import recording


@pytest.fixture(scope="session")
def recorder(tmp_path_factory: pytest.TempPathFactory, needs: Callable[[str, str], str]) -> Path:
    needs("gcc", "apt-get install gcc")
    return recording.build(tmp_path_factory.mktemp("recorder"))
