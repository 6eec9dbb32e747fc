"""A static page that shows a Slack message as Slack does, for pictures in the documentation.

Knows what `alerts/channels/slack.py` writes: header and section blocks, one attachment's bar, plain
text, and links in mrkdwn. Self-contained: no script, nothing is fetched, all text is escaped.

`python -m scripts.slack_preview < payload.json > message.html`
"""

import html
import json
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

_LINK = re.compile(r"<(?P<url>https?://[^<>|\s]+)\|(?P<name>[^<>|]+)>")
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")

STYLE = """
body { margin: 0; padding: 20px 24px; background: #fff; color: #1d1c1d;
  font: 15px/1.46 Lato, "Noto Sans", "DejaVu Sans", Arial, sans-serif; }
.message { display: grid; grid-template-columns: 36px 1fr; column-gap: 8px; max-width: 720px; }
.message + .message { margin-top: 22px; }
.icon { width: 36px; height: 36px; border-radius: 6px; background: #134e4a; color: #fff;
  font-weight: 700; text-align: center; line-height: 36px; }
.who { font-weight: 900; }
.app { background: #e8e8e8; color: #616061; border-radius: 2px; padding: 1px 3px; font-size: 10px;
  font-weight: 700; margin: 0 6px; vertical-align: 2px; }
.at { color: #616061; font-size: 12px; font-weight: 400; }
h3 { margin: 8px 0 6px; font-size: 18px; line-height: 1.33; font-weight: 900; }
.attachment { display: grid; grid-template-columns: 4px 1fr; column-gap: 12px; margin-top: 4px; }
.bar { border-radius: 8px; background: #ddd; }
p { margin: 0 0 6px; overflow-wrap: anywhere; white-space: pre-wrap; }
p:last-child { margin-bottom: 0; }
a { color: #1264a3; text-decoration: none; }
"""


def page(payloads: list[Mapping[str, Any]], at: str = "3:07 AM") -> str:
    """Return a whole page with these messages, each sent at `at`."""
    said = "".join(message(payload, at) for payload in payloads)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A Slack message</title>'
        f"<style>{STYLE}</style></head><body>{said}</body></html>\n"
    )


def message(payload: Mapping[str, Any], at: str) -> str:
    """Return one message: sender, time, its blocks and its attachments."""
    blocks = "".join(_blocks(payload["blocks"]))
    attachments = "".join(map(_attachment, payload["attachments"]))
    return (
        '<div class="message"><div class="icon">g</div><div>'
        f'<span class="who">gpuvigil</span><span class="app">APP</span>'
        f'<span class="at">{html.escape(at)}</span>{blocks}{attachments}</div></div>'
    )


def _attachment(attachment: Mapping[str, Any]) -> str:
    colour = attachment["color"]
    if not _COLOUR.fullmatch(colour):
        raise ValueError(f"{colour!r} is not a colour")
    blocks = "".join(_blocks(attachment["blocks"]))
    bar = f'<div class="bar" style="background:{colour}"></div>'
    return f'<div class="attachment">{bar}<div>{blocks}</div></div>'


def _blocks(blocks: list[Mapping[str, Any]]) -> Iterator[str]:
    for block in blocks:
        tag = {"header": "h3", "section": "p"}[block["type"]]
        yield f"<{tag}>{_text(block['text'])}</{tag}>"


def _text(text: Mapping[str, Any]) -> str:
    if text["type"] == "plain_text":
        return _shown(text["text"])
    parts, end = [], 0
    for link in _LINK.finditer(text["text"]):
        parts.append(_shown(text["text"][end : link.start()]))
        parts.append(f'<a href="{_shown(link["url"])}">{_shown(link["name"])}</a>')
        end = link.end()
    return "".join([*parts, _shown(text["text"][end:])])


def _shown(text: str) -> str:
    """Return the HTML of what Slack shows for a text; Slack decodes three entities and no others."""
    for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        text = text.replace(entity, character)
    return html.escape(text)


def main() -> int:
    """Read one payload, or a list of them, and write the page."""
    value = json.load(sys.stdin)
    sys.stdout.write(page(value if isinstance(value, list) else [value]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
