"""The client of the hub, where no hub has to answer."""

import socket
from pathlib import Path

import pytest

from gpuvigil.config import HubSettings
from gpuvigil.config.startup import fail
from gpuvigil.errors import ConfigError, HubUnavailable
from gpuvigil.hub_client import Hub, service_hubs


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


@pytest.mark.parametrize(
    ("url", "token"),
    [
        ("http://127.0.0.1:{port}", "\ufeffsecret"),
        ("http://127.0.0.1:{port}", "sec\rret"),
        ("http://a..b:{port}", "secret"),
        (f"http://{'x' * 64}:{{port}}", "secret"),
    ],
    ids=["a byte order mark", "a carriage return", "an empty label", "a long label"],
)
def test_what_cannot_be_sent_is_a_hub_that_is_away_and_shows_no_token(url: str, token: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        hub = Hub(url.format(port=server.getsockname()[1]), lambda: token)
        for _ in range(2):
            with pytest.raises(HubUnavailable, match="cannot be asked") as raised:
                hub.status()
            assert "ret" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "todo"),
    [
        ("http://127.0.0.1:1", "is it running? 'gpuvigil up' starts everything"),
        ("http://no.such.host.invalid:1", "check hub.url"),
    ],
)
def test_a_command_says_what_to_do_about_a_hub_that_does_not_answer(
    url: str, todo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(HubUnavailable) as raised:
        Hub(url, lambda: "secret").status()
    assert fail("gpuvigil silence", raised.value) == 1
    said = capsys.readouterr().err
    assert said.startswith("gpuvigil silence: hub at http://")
    assert said.endswith(f"; {todo}\n")
