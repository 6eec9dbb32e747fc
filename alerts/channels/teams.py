"""A Microsoft Teams channel, through a workflow that takes Adaptive Cards.

Formats: learn.microsoft.com, "Create incoming webhooks with Workflows for Microsoft Teams";
adaptivecards.io, "Schema explorer", version 1.4. A card may have 28 KB, and what has no charset is
counted as two bytes a character. A workflow can neither edit nor thread, and answers 202.
"""

import json
import re
from typing import Any

from gpuvigil.config import TeamsSettings
from gpuvigil.model import Severity

from ..messages.channel import Pace
from ..messages.message import Message
from .http_post import Post, Posting
from .shared_parts import LONGEST_TITLE, answers, cut_bytes, headline, links, title

PACE = Pace(burst=4, per_second=1.0)
LONGEST_TITLE_BYTES = 400
LONGEST_VALUE_BYTES = 1500
LONGEST_LINK = 1500

_UTF8 = {"Content-Type": "application/json; charset=utf-8"}
_STYLES = {Severity.CRITICAL: "attention", Severity.WARNING: "warning", Severity.INFO: "default"}
# What Adaptive Cards read as Markdown: emphasis, links, lists, and numbers that would begin one.
_MARKS = re.compile(r"([\\`*_\[\]()#>~|!<{}-])")


def teams(settings: TeamsSettings, external_url: str) -> Posting:
    """Return the channel to one workflow; ConfigError when its URL is invalid."""
    del external_url  # its messages carry whole addresses
    return Posting(
        settings, lambda message: [Post(payload=payload(message), headers=_UTF8)], pace=PACE
    )


def payload(message: Message) -> dict[str, Any]:
    """Return the JSON value to post."""
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        # Read aloud, and shown where the card is not.
        "fallbackText": cut_bytes(headline(message), LONGEST_VALUE_BYTES),
        "body": [_title(message), *(_line(q, a) for q, a in answers(message))],
        "actions": [
            {"type": "Action.OpenUrl", "title": name, "url": url}
            for name, url in links(message)
            if len(url) <= LONGEST_LINK
        ],
    }
    content_type = "application/vnd.microsoft.card.adaptive"
    attachment = {"contentType": content_type, "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


def plain(text: str, longest_bytes: int) -> str:
    """Return `text` with all that a card reads as markup escaped; at most `longest_bytes` as JSON."""
    kept: list[str] = []
    length = 0
    for character in text:
        shown = _MARKS.sub(r"\\\1", character)
        length += len(json.dumps(shown, ensure_ascii=False).encode()) - 2
        if length > longest_bytes - 3:
            return "".join(kept) + "…"
        kept.append(shown)
    return "".join(kept)


def _title(message: Message) -> dict[str, Any]:
    over = "default" if message.covered else "good"
    style = _STYLES[message.severity] if message.firing else over
    text = {
        "type": "TextBlock",
        "text": plain(title(message, LONGEST_TITLE // 2), LONGEST_TITLE_BYTES),
        "weight": "Bolder",
        "size": "Medium",
        "wrap": True,
    }
    return {"type": "Container", "style": style, "bleed": True, "items": [text]}


def _line(question: str, answer: str) -> dict[str, Any]:
    text = f"**{question}:** {plain(answer, LONGEST_VALUE_BYTES)}"
    return {"type": "TextBlock", "text": text, "wrap": True, "spacing": "Small"}
