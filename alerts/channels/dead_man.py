"""A call to somebody outside who minds when it stops, as healthchecks does.

Format: healthchecks.io, "Pinging API": a POST to the check's address, whatever its body.
"""

from datetime import datetime

from gpuvigil.config import AlertsSettings, PostSettings

from ..messages.channel import Outcome
from .http_post import Post, Posting


class DeadMan:
    """The address that is called; ConfigError when it cannot be one."""

    def __init__(self, settings: AlertsSettings) -> None:
        self._post = Posting(
            PostSettings(
                name="dead_man",
                url=settings.dead_man_url,
                url_file=settings.dead_man_url_file,
            ),
            lambda _: [],
        )

    def call(self, now: datetime) -> Outcome:
        """Say that all is well; ConfigError when its file cannot be read at the moment."""
        return self._post.send([Post(payload={"from": "gpuvigil"})], "dead_man", now)


def dead_man(settings: AlertsSettings) -> DeadMan:
    """By `alerts.dead_man_url`."""
    return DeadMan(settings)
