"""A Discord channel, through its webhook.

Formats: discord.com/developers, "Webhook resource" (`wait`, editing by the message's id), "Embed
limits" (title 256, field name 256, value 1,024, all of them 6,000 characters), "Allowed mentions",
"Rate limits". About 30 messages a minute go into a channel. A mere change is edited in place, which
makes no sound; what is new, worse, or still there is a message of its own.
"""

import re
from dataclasses import replace
from typing import Any

from gpuvigil.clock import to_text
from gpuvigil.config import DiscordSettings
from gpuvigil.model import Severity

from ..messages.channel import Delivered, Outcome, Pace, Refused, Retry
from ..messages.message import Message
from .http_post import Answer, Post, Posting, outcome_of
from .shared_parts import answers, cut, links, title

PACE = Pace(burst=5, per_second=0.5)
LONGEST_TITLE = 256
LONGEST_VALUE = 800
LONGEST_LINK = 700

_RED, _ORANGE, _GREY, _GREEN = 0xC62828, 0xD97706, 0x64748B, 0x2E7D32
_COLOURS = {Severity.CRITICAL: _RED, Severity.WARNING: _ORANGE, Severity.INFO: _GREY}
_MARKS = re.compile(r"([\\`*_~|>#\[\]()<@:-])")
_GONE = "the webhook is gone: make a new one and put its URL in url_file"


class Discord(Posting):
    """The channel to one webhook; messages to be edited are found by their id."""

    def deliver(self, message: Message) -> Outcome:
        outcome = super().deliver(message)
        if isinstance(outcome, Refused) and outcome.lost:
            # Somebody has deleted the message.
            return super().deliver(replace(message, receipt=None))
        return outcome


def discord(settings: DiscordSettings, external_url: str) -> Discord:
    """Return the channel to one webhook; ConfigError when its URL is invalid."""
    del external_url  # its messages carry whole addresses
    return Discord(settings, posts, judge=judge, pace=PACE, reads=True)


def posts(message: Message) -> list[Post]:
    """Return the request for a new message, or for an edit of the last one."""
    value = payload(message)
    if message.receipt is None or message.loud:
        return [Post(payload=value, query="wait=true")]
    return [Post(payload=value, method="PATCH", path=f"/messages/{message.receipt}")]


def payload(message: Message) -> dict[str, Any]:
    """Return the JSON value to post; nobody is mentioned, whatever a job is called."""
    fields = [
        {"name": question, "value": plain(answer, LONGEST_VALUE) or "-"}
        for question, answer in answers(message)
    ]
    written = [f"[{name}](<{url}>)" for name, url in links(message) if len(url) <= LONGEST_LINK]
    if written:
        fields.append({"name": "Links", "value": cut(" | ".join(written), 1024)})
    over = _GREY if message.covered else _GREEN
    embed = {
        "title": plain(title(message, LONGEST_TITLE), LONGEST_TITLE),
        "color": _COLOURS[message.severity] if message.firing else over,
        "fields": fields,
        "timestamp": to_text(message.at),
    }
    return {"content": "", "embeds": [embed], "allowed_mentions": {"parse": []}}


def plain(text: str, longest: int) -> str:
    """Return `text` with Discord's markup escaped, at most `longest` characters."""
    whole = _MARKS.sub(r"\\\1", text)
    if len(whole) <= longest:
        return whole
    # Never between a backslash and what it escapes.
    kept = whole[: longest - 1]
    odd = (len(kept) - len(kept.rstrip("\\"))) % 2
    return kept[: len(kept) - odd] + "…"


def judge(answer: Answer) -> Outcome:
    """Return the outcome of Discord's answer; its own error code counts for more than the status."""
    outcome, said = outcome_of(answer), answer.json_body
    if isinstance(outcome, Delivered):
        receipt = said.get("id")
        return Delivered(
            receipt=receipt if isinstance(receipt, str) and receipt.isdigit() else None
        )
    code = said.get("code")
    if code == 10008:
        return Refused(reason=f"{outcome.reason} 10008", lost=True)
    if code == 10015:
        return Retry(reason=f"{outcome.reason}: {_GONE}")
    after = said.get("retry_after")
    if answer.status == 429 and answer.retry_after is None and isinstance(after, int | float):
        return Retry(reason=outcome.reason, after_seconds=max(float(after), 0.0))
    return outcome
