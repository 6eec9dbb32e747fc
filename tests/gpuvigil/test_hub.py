"""The client of the hub, where no hub has to answer."""

from pathlib import Path

import pytest

from gpuvigil.config import HubSettings
from gpuvigil.errors import ConfigError, HubUnavailable
from gpuvigil.hub import service_hubs


def test_a_token_that_is_being_replaced_is_a_hub_that_is_away_for_now(tmp_path: Path) -> None:
    token = tmp_path / "token"
    settings = HubSettings(url="http://127.0.0.1:1", service_token_file=token)
    with pytest.raises(ConfigError, match="cannot read the service token"):
        service_hubs(settings)
    token.write_text("secret\n")
    hub = service_hubs(settings)()
    token.write_text("")  # as a shell leaves it until the program behind ">" has written
    with pytest.raises(HubUnavailable, match="is not asked: the service token in"):
        hub.status()
    token.write_text("another\n")
    with pytest.raises(HubUnavailable, match="does not answer"):
        hub.status()
