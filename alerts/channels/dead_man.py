"""A call to somebody outside who minds when it stops, as healthchecks does.

Format: healthchecks.io, "Pinging API": a POST to the check's address, whatever its body.
"""

from collections.abc import Callable
from datetime import datetime

from gpuvigil.config import AlertsSettings, PostSettings

from ..messages.channel import Outcome
from .http_post import Post, Posting


def dead_man(settings: AlertsSettings) -> Callable[[datetime], Outcome]:
    """What says at `alerts.dead_man_url` that all is well; ConfigError when there can be no such address.

    The call raises ConfigError when the address cannot be read from its file at the moment.
    """
    address = PostSettings(
        name="dead_man", url=settings.dead_man_url, url_file=settings.dead_man_url_file
    )
    post = Posting(address, lambda _: [])
    return lambda now: post.send([Post(payload={"from": "gpuvigil"})], "dead_man", now)
