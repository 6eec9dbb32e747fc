"""A Slack channel, through an incoming webhook.

Formats: docs.slack.dev, "Sending messages using incoming webhooks", "Formatting message text",
"Block Kit", "Rate limits". A webhook can neither edit nor thread, so every message about an incident
carries the same title.
"""

from dataclasses import replace
from typing import Any

from gpuvigil.config import SlackSettings
from gpuvigil.model import Severity

from ..channel import Delivered, Outcome, Pace, Retry
from ..message import Message
from .parts import answers, headline, links
from .post import Answer, Post, Posting, outcome_of

# One message a second is what Slack takes for long.
PACE = Pace(burst=1, per_second=1.0)

# Slack's limit for a header. The others keep the whole message under 12,000 characters, also when
# every one of them is written as two: from about 13,000 on Slack refuses it.
LONGEST_HEADER = 150
LONGEST_TEXT = 300
LONGEST_VALUE = 800
LONGEST_LINK = 700

_RED, _ORANGE, _GREY, _GREEN = "#c62828", "#d97706", "#64748b", "#2e7d32"
_COLOURS = {Severity.CRITICAL: _RED, Severity.WARNING: _ORANGE, Severity.INFO: _GREY}

_NEW_URL = "the webhook is gone or switched off: make a new one and put its URL in url_file"
_FORBIDDEN = "the workspace does not let it post there: ask one of its administrators"
# What somebody can mend while the message waits; whatever else Slack dislikes is the message.
_MENDABLE = {
    "no_service": _NEW_URL,
    "no_active_hooks": _NEW_URL,
    "no_team": _NEW_URL,
    "team_disabled": _NEW_URL,
    "invalid_token": _NEW_URL,
    "channel_not_found": "the channel is gone: make a webhook for another one",
    "channel_is_archived": "the channel is archived: unarchive it, or make a webhook for another",
    "action_prohibited": _FORBIDDEN,
    "posting_to_general_channel_denied": _FORBIDDEN,
}


def slack(settings: SlackSettings, external_url: str) -> Posting:
    """The channel to one incoming webhook; ConfigError when its URL cannot be one."""
    del external_url  # its messages carry whole addresses
    return Posting(
        settings, lambda message: [Post(payload=payload(message))], judge=judge, pace=PACE
    )


def judge(answer: Answer) -> Outcome:
    """What Slack's answer means: its word for what is wrong counts for more than the status."""
    outcome = outcome_of(answer)
    if isinstance(outcome, Delivered) or not answer.word:
        return outcome
    said = f"{outcome.reason} {answer.word}"
    advice = _MENDABLE.get(answer.word)
    if advice is not None:
        return Retry(reason=f"{said}: {advice}")
    if answer.status == 400:
        said += ": Slack does not understand the message; please report it as a bug"
    return replace(outcome, reason=said)


def payload(message: Message) -> dict[str, Any]:
    """The JSON value that is posted. `text` is what a phone's notification shows."""
    return {
        "text": escaped(headline(message), LONGEST_TEXT),
        "mrkdwn": False,
        "unfurl_links": False,
        "unfurl_media": False,
        "blocks": [{"type": "header", "text": _plain(message.summary, LONGEST_HEADER)}],
        "attachments": [{"color": _colour(message), "blocks": _blocks(message)}],
    }


def escaped(text: str, longest: int) -> str:
    """`text` with Slack's three control characters escaped, cut to at most `longest` characters."""
    whole = "".join(map(_escape, text))
    if len(whole) <= longest:
        return whole
    kept, length = [], 1
    for character in map(_escape, text):
        length += len(character)
        if length > longest:
            break
        kept.append(character)
    return "".join(kept) + "…"


def _escape(character: str) -> str:
    return {"&": "&amp;", "<": "&lt;", ">": "&gt;"}.get(character, character)


def _colour(message: Message) -> str:
    if message.firing:
        return _COLOURS[message.severity]
    return _GREY if message.covered else _GREEN


def _blocks(message: Message) -> list[dict[str, Any]]:
    """A line per question, and the links."""
    # Plain text objects: what strangers named their jobs is never read as markup.
    lines = [
        {"type": "section", "text": _plain(f"{q}: {a}", LONGEST_VALUE)} for q, a in answers(message)
    ]
    return [*lines, {"type": "section", "text": {"type": "mrkdwn", "text": _links(message)}}]


def _links(message: Message) -> str:
    written = [_link(url, name) for name, url in links(message)]
    # The subject's page has its names in its address, which may be long.
    return "  |  ".join(one for one in written if len(one) <= LONGEST_LINK)


def _link(url: str, name: str) -> str:
    return f"<{''.join(map(_escape, url)).replace('|', '%7C')}|{name}>"


def _plain(text: str, longest: int) -> dict[str, Any]:
    return {"type": "plain_text", "text": escaped(text, longest), "emoji": False}
