"""An Alertmanager: firing alerts are posted again and again, resolved ones for a while.

Format: Alertmanager's OpenAPI, "postAlerts" (`/api/v2/alerts`). An alert that is not posted again
ends by itself at its `endsAt`, as those of a Prometheus do; so nothing stays there for ever when
gpuvigil is gone.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from gpuvigil.clock import to_text
from gpuvigil.config import AlertmanagerSettings

from ..messages.channel import Outcome
from ..messages.message import Message
from .http_post import Post, Posting
from .webhook import annotations_of, labels_of

# A firing alert ends by itself after this many missed posts, as with Prometheus.
MISSED_POSTS = 4


class Alertmanager(Posting):
    """The channel to one Alertmanager; `resend` repeats what still counts.

    Resolved alerts are repeated for five minutes, for an Alertmanager that was away meanwhile.
    """

    ended_for = timedelta(minutes=5)

    def __init__(self, settings: AlertmanagerSettings) -> None:
        super().__init__(settings, self._posts)
        self.resend_seconds = settings.resend_seconds

    def resend(self, messages: Sequence[Message], now: datetime) -> Outcome:
        """Post firing and just resolved alerts again; ConfigError without a URL."""
        return self.send([self._post_of(messages, now)], "resend", now)

    def _posts(self, message: Message) -> list[Post]:
        return [self._post_of([message], message.at)]

    def _post_of(self, messages: Sequence[Message], now: datetime) -> Post:
        until = now + timedelta(seconds=self.resend_seconds * MISSED_POSTS)
        value = [payload(message, until) for message in messages]
        return Post(payload=value, path="/api/v2/alerts")


def alertmanager(settings: AlertmanagerSettings, external_url: str) -> Alertmanager:
    """Return the channel to one Alertmanager; ConfigError when its URL is invalid."""
    del external_url  # its alerts carry whole addresses
    return Alertmanager(settings)


def payload(message: Message, until: datetime) -> dict[str, Any]:
    """Return one alert; a firing one is valid `until` then."""
    return {
        "labels": labels_of(message) | {"incident": message.incident},
        "annotations": annotations_of(message),
        "startsAt": to_text(message.starts_at),
        "endsAt": to_text(message.ends_at or until),
        "generatorURL": message.link,
    }
