"""A Slack channel, through an incoming webhook.

Formats: docs.slack.dev, "Sending messages using incoming webhooks", "Formatting message text",
"Block Kit", "Rate limits". A webhook can neither edit nor thread, so every message about an incident
carries the same title.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuvigil.config import SlackSettings
from gpuvigil.errors import ConfigError
from gpuvigil.model import Severity

from ..messages.channel import Delivered, Outcome, Pace, Refused, Retry
from ..messages.message import LISTED, Message
from ..routing.notice import is_idle_notice
from .http_post import Answer, Post, Posting, outcome_of
from .shared_parts import answers, headline, links, title

# Slack accepts one message a second in the long run.
PACE = Pace(burst=1, per_second=1.0)

# Slack's limit for a header. The others keep the whole message under 12,000 characters, even when
# each character is written as two: from about 13,000 on Slack refuses it.
LONGEST_HEADER = 150
LONGEST_TEXT = 300
LONGEST_VALUE = 800
LONGEST_LINK = 700

# The id of a member of a workspace, or of an enterprise.
_MEMBER = re.compile(r"[UW][A-Z0-9]{6,20}")

_RED, _ORANGE, _GREY, _GREEN = "#c62828", "#d97706", "#64748b", "#2e7d32"
_COLOURS = {Severity.CRITICAL: _RED, Severity.WARNING: _ORANGE, Severity.INFO: _GREY}

_NEW_URL = "the webhook is gone or switched off: make a new one and put its URL in url_file"
_FORBIDDEN = "the workspace does not let it post there: ask one of its administrators"
# Errors that somebody can fix while the message waits; any other is the message's fault.
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
    """Return the channel to one incoming webhook; ConfigError when its URL is invalid."""
    del external_url  # its messages carry whole addresses
    return Slack(settings)


class Slack(Posting):
    """The channel to one webhook, which may mention the owners of GPUs."""

    def __init__(self, settings: SlackSettings) -> None:
        super().__init__(settings, self._posts, judge=judge, pace=PACE)
        self._slack = settings
        if settings.mentions_file is not None:
            self.profile = replace(self.profile, owners=True)
            mentions(settings.mentions_file)

    def deliver(self, message: Message) -> Outcome:
        return undeliverable_reason(message, self._slack) or super().deliver(message)

    def _posts(self, message: Message) -> list[Post]:
        return [Post(payload=payload(message, mentioned(message, self._slack)))]


def mentioned(message: Message, settings: SlackSettings) -> list[str]:
    """Return the member ids of a message's owners; ConfigError when the file cannot be read."""
    if settings.mentions_file is None or not message.for_owners:
        return []
    known = mentions(settings.mentions_file)
    found = [known[owner] for owner in message.for_owners if owner in known]
    return list(dict.fromkeys(found))[:LISTED]


def undeliverable_reason(message: Message, settings: SlackSettings) -> Outcome | None:
    """Return why a notice of idle GPUs is not posted; None when it is.

    Without a known owner it would reach nobody, and yet count as sent.
    """
    try:
        if not is_idle_notice(message.incident) or mentioned(message, settings):
            return None
    except ConfigError as error:
        return Retry(reason=str(error))
    said = f"no owner of it is in mentions_file {settings.mentions_file}"
    return Refused(reason=said, for_nobody=True)


def mentions(file: Path) -> dict[str, str]:
    """Read Slack's member ids by user, from lines like `alice U0123ABCD`.

    ConfigError says what is wrong.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError(f"cannot read mentions_file {file}: {why}") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if words and (len(words) != 2 or not _MEMBER.fullmatch(words[1])):
            raise ConfigError(f"{file}, line {number}: not a user and an id like U0123ABCD")
        found.update({words[0]: words[1]} if words else {})
    return found


def judge(answer: Answer) -> Outcome:
    """Return the outcome of Slack's answer: its word for the error counts for more than the status."""
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


def payload(message: Message, members: Sequence[str] = ()) -> dict[str, Any]:
    """Return the JSON value to post; `text` is what a phone's notification shows.

    `members` are mentioned below the title.
    """
    heading = {"type": "header", "text": _plain(title(message, LONGEST_HEADER), LONGEST_HEADER)}
    whom = " ".join(f"<@{member}>" for member in members)
    for_them = {"type": "section", "text": {"type": "mrkdwn", "text": f"For {whom}"}}
    return {
        "text": escaped(headline(message), LONGEST_TEXT),
        "mrkdwn": False,
        "unfurl_links": False,
        "unfurl_media": False,
        "blocks": [heading, for_them] if members else [heading],
        "attachments": [{"color": _colour(message), "blocks": _blocks(message)}],
    }


def escaped(text: str, longest: int) -> str:
    """Return `text`, Slack's three control characters escaped, in at most `longest` characters."""
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
    """Return a block per question, and one with the links."""
    # Plain text objects: the names that strangers gave their jobs are never read as markup.
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
