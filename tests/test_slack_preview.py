"""The picture of a Slack message shows what Slack would show, and nothing else."""

import html
import re

import pytest

from alerts.channels.slack import payload
from alerts.messages.message import message
from alerts.routing.notice import Kind
from gpuvigil.model import Impact
from scripts.slack_preview import page
from tests.alerts.examples import NOON, opened
from tests.alerts.test_message import noticed

SAID = message(noticed(opened(), Kind.FIRED), NOON, "https://gpus.example.org")


def shown(document: str) -> str:
    """The document's text."""
    body = document.partition("<body>")[2]
    return html.unescape(re.sub(r"<[^>]*>", "\n", body))


def test_every_part_of_the_message_is_in_the_picture() -> None:
    text = shown(page([payload(SAID)]))
    for part in (SAID.summary, SAID.where, SAID.since, SAID.impact, SAID.evidence, SAID.action):
        assert part in text


def test_links_lead_where_the_message_s_links_lead() -> None:
    found = re.findall(r'<a href="([^"]*)">([^<]*)</a>', page([payload(SAID)]))
    assert [(html.unescape(url), name) for url, name in found] == [
        (SAID.link, "Open the GPU"),
        (SAID.incident_link, "Acknowledge"),
    ]


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "&lt;b&gt;", "<!channel>", "*x*"])
def test_what_strangers_wrote_is_text(name: str) -> None:
    impact = Impact(gpus=1, text=f"{name} waits")
    said = message(noticed(opened(impact=impact), Kind.FIRED), NOON, "https://gpus.example.org")
    document = page([payload(said)])
    assert f"Impact: {name} waits" in shown(document)
    assert "<script" not in document


def test_nothing_is_fetched() -> None:
    document = page([payload(SAID)])
    assert not re.search(r"<(script|link|img|iframe)|url\(|@import|src=", document)


def test_a_colour_that_is_none_is_refused() -> None:
    value = payload(SAID)
    value["attachments"][0]["color"] = "red;background:url(//x)"
    with pytest.raises(ValueError, match="is not a colour"):
        page([value])
