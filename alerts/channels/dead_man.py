"""A dead man's switch: calls to an outside service that alerts when they stop, like healthchecks.

Format: healthchecks.io, "Pinging API": a POST to the check's address, whatever its body.
"""

from collections.abc import Callable
from datetime import datetime

from gpuvigil.config import AlertsSettings, PostSettings

from ..messages.channel import Outcome
from .http_post import Post, Posting


def dead_man(settings: AlertsSettings) -> Callable[[datetime], Outcome]:
    """Return the call that tells `alerts.dead_man_url` all is well; ConfigError for a bad address.

    The call raises ConfigError when the address cannot be read from its file at the moment.
    """
    address = PostSettings(
        name="dead_man",
        url=settings.dead_man_url,
        url_file=settings.dead_man_url_file,
        proxy=settings.dead_man_proxy,
        proxy_file=settings.dead_man_proxy_file,
    )
    post = Posting(address, lambda _: [])
    return lambda now: post.send([Post(payload={"from": "gpuvigil"})], "dead_man", now)
