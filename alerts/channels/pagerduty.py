"""A PagerDuty service, through its Events API v2.

Format: developer.pagerduty.com, "Send an alert event" (summary 1,024 and dedup_key 255 characters,
512 KB in all, 202 when it was taken; a 400 lists what is wrong with the event). One incident is one alert, by its `dedup_key`: what is sent
twice is there once. About 120 events a minute are taken for a key.
"""

import re
from typing import Any

from gpuvigil.clock import to_text
from gpuvigil.config import PagerdutySettings

from ..messages.channel import Outcome, Pace, Retry
from ..messages.message import Message
from .address import secret_of
from .http_post import Answer, Post, Posting, outcome_of
from .shared_parts import answers, cut, links

PACE = Pace(burst=10, per_second=2.0)
LONGEST_SUMMARY = 1024
LONGEST_KEY = 255
# "Invalid routing key", "Length of 'routing_key' is incorrect": somebody can fix that.
_KEY = re.compile(rb"routing[ _]key", re.IGNORECASE)


def pagerduty(settings: PagerdutySettings, external_url: str) -> Posting:
    """Return the channel to one service; ConfigError without a routing key or a valid URL."""

    def key() -> str:
        file, variable = settings.routing_key_file, settings.routing_key_variable
        return secret_of(file, variable, f"routing key of the channel {settings.name}")

    key()
    return Posting(
        settings,
        lambda message: [Post(payload=payload(message, key(), external_url))],
        judge=judge,
        pace=PACE,
    )


def judge(answer: Answer) -> Outcome:
    """Return the outcome of PagerDuty's answer: a wrong key is not the message's fault."""
    if answer.status == 400 and _KEY.search(answer.content):
        said = "the routing key is not taken: put that of an Events API v2 integration in its place"
        return Retry(reason=f"{answer.host} answered 400: {said}")
    return outcome_of(answer)


def payload(message: Message, routing_key: str, external_url: str) -> dict[str, Any]:
    """Return the JSON value to post; its texts are shown as they are, without markup."""
    event: dict[str, Any] = {
        "routing_key": routing_key,
        "event_action": "trigger" if message.firing else "resolve",
        "dedup_key": cut(f"gpuvigil/{message.incident}", LONGEST_KEY),
    }
    if not message.firing:
        return event
    subject = message.subject
    return {
        **event,
        "client": "gpuvigil",
        "client_url": external_url,
        "links": [{"href": url, "text": name} for name, url in links(message)],
        "payload": {
            "summary": cut(message.summary, LONGEST_SUMMARY),
            "source": cut(subject.key, LONGEST_SUMMARY),
            "severity": message.severity.value,
            "timestamp": to_text(message.starts_at),
            "component": subject.gpu or subject.device or subject.node,
            "group": subject.cluster,
            "class": message.fault,
            "custom_details": dict(answers(message)),
        },
    }
