"""Any service that Apprise supports, as plain text; an optional extra.

Apprise says only whether a message went out, not why not, nor when to try again, and it makes its
own connections: what is promised about addresses and time-outs holds for the other channels only.
"""

import importlib
from typing import Any

from gpuvigil.config import AppriseSettings
from gpuvigil.errors import ConfigError

from ..messages.channel import Delivered, Outcome, Pace, Retry
from ..messages.message import Message
from .address import url_of
from .http_post import profile_of
from .shared_parts import LONGEST_TITLE, answers, links, title

PACE = Pace(burst=1, per_second=1.0)


class Apprise:
    """The channel to one service."""

    def __init__(self, settings: AppriseSettings) -> None:
        self._settings = settings
        self.profile, self.pace = profile_of(settings), PACE
        # Apprise connects and reads with time-outs of its own, of four seconds each.
        self.timeout_seconds = settings.timeout_seconds
        try:
            self._library: Any = importlib.import_module("apprise")
        except ModuleNotFoundError:
            raise ConfigError(
                f"the channel {settings.name!r} needs Apprise:"
                " in a checkout, pip install '.[apprise]'"
            ) from None
        self._service()

    def deliver(self, message: Message) -> Outcome:
        said = [f"{question}: {answer}" for question, answer in answers(message)]
        led = [f"{name.rstrip('?')}: {url}" for name, url in links(message)]
        try:
            service = self._service()
        except ConfigError as error:
            return Retry(reason=str(error))
        body = "\n".join([*said, *led])
        if service.notify(title=title(message, LONGEST_TITLE), body=body, body_format="text"):
            return Delivered()
        said_so = f"Apprise could not send through {self._settings.name}"
        return Retry(reason=said_so, perhaps_received=True)

    def close(self) -> None:
        """Do nothing: Apprise keeps nothing open."""

    def _service(self) -> Any:
        """Return Apprise with the service's current address; ConfigError never quotes the address."""
        service = self._library.Apprise()
        if not service.add(url_of(self._settings)):
            raise ConfigError(
                f"the URL of the channel {self._settings.name!r} is none that Apprise knows"
            )
        return service


def apprise(settings: AppriseSettings, external_url: str) -> Apprise:
    """Return the channel to one service; ConfigError without Apprise, or for an unknown service."""
    del external_url  # its messages carry whole addresses
    return Apprise(settings)
