"""A Slack message reads well, stays within Slack's limits, and takes nothing strangers wrote for markup."""

import html
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from alerts.channels.http_post import Answer as Answered
from alerts.channels.slack import LONGEST_HEADER, escaped, judge, mentioned, payload, slack
from alerts.channels.slack_bot import SlackBot
from alerts.messages.channel import Delivered, Outcome, Refused, Retry
from alerts.messages.message import Message, message
from alerts.routing.notice import Kind, Notice, Verdict
from gpuvigil.config import SlackSettings
from gpuvigil.errors import ConfigError
from gpuvigil.model import CoveredBy, Evidence, Impact, Severity, Subject
from tests.receiver import Answer, Receiver, too_many

from .examples import NOON, REAL, changed, opened, resolved, seconds
from .test_message import noticed

URL = "https://gpus.example.org"
LATER = NOON + seconds(720)
REAL_GPU: dict[str, Any] = {"subject": REAL, "label": "n1 GPU 5"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def told(**changes: Any) -> Message:
    return message(noticed(opened(**{**REAL_GPU, **changes}), Kind.FIRED), LATER, URL)


def ended(covered_by: CoveredBy | None = None) -> Message:
    over = replace(resolved(at=LATER, **REAL_GPU), reason="seen", cause=covered_by)
    return message(noticed(over, Kind.RESOLVED), LATER, URL)


def header(value: dict[str, Any]) -> str:
    (block,) = value["blocks"]
    assert (block["type"], block["text"]["type"]) == ("header", "plain_text")
    return str(block["text"]["text"])


def attachment(value: dict[str, Any]) -> dict[str, Any]:
    (only,) = value["attachments"]
    return dict(only)


def lines(value: dict[str, Any]) -> list[str]:
    return [str(block["text"]["text"]) for block in attachment(value)["blocks"]]


def test_somebody_who_is_woken_reads_what_matters_in_order() -> None:
    value = payload(told())
    assert header(value) == "GPU fell off the bus: n1 GPU 5 (critical)"
    assert lines(value) == [
        "Where: n1 GPU 5 (GPU-1), cluster lab",
        "Since: 12:00:00 UTC on 20 Nov (12 min ago)",
        "Impact: 1 GPU blocked; allocated to job 1234 (alice)",
        "Evidence: Xid: 79 (normal: none)",
        "Do now: Drain the node and reboot it.",
        f"<{URL}/gpu?cluster=lab&amp;node=n1&amp;gpu=GPU-1"
        "&amp;from=2026-11-20T11%3A30%3A00Z&amp;to=2026-11-20T12%3A42%3A00Z|Open the GPU>"
        f"  |  <{URL}/incidents?incident=i-1|Acknowledge>",
    ]


def test_a_phone_shows_what_where_who_is_hit_and_what_to_do() -> None:
    assert payload(told())["text"] == (
        "GPU fell off the bus: n1 GPU 5 (critical). Impact: 1 GPU blocked; allocated to job 1234 (alice)."
        " Do now: Drain the node and reboot it."
    )


def test_slack_fetches_nothing_to_show_beside_the_message() -> None:
    value = payload(told())
    assert (value["unfurl_links"], value["unfurl_media"], value["mrkdwn"]) == (False, False, False)


def test_a_simulated_incident_says_so_first() -> None:
    simulated = message(noticed(opened(), Kind.FIRED), LATER, URL)
    value = payload(simulated)
    assert header(value).startswith("[simulated] ")
    assert value["text"].startswith("[simulated] ")


def test_the_end_is_short_and_asks_for_nothing_now() -> None:
    value = payload(ended())
    assert header(value) == "Resolved after 12 min: GPU fell off the bus: n1 GPU 5"
    nothing = "Nothing now. Should it come back: Drain the node and reboot it."
    assert value["text"] == f"{header(value)}. {nothing}"
    since, why, action, links = lines(value)
    assert why == "Why over: seen"
    assert since == "From: 12:00:00 UTC on 20 Nov until 12:12:00 UTC on 20 Nov (12 min)"
    assert action == f"Do now: {nothing}"
    assert "|Open the GPU>" in links
    assert "Acknowledge" not in links


def test_colours_say_how_urgent_it_is_and_green_only_that_it_is_over() -> None:
    said = [
        *(told(severity=severity) for severity in Severity),
        ended(),
        ended(CoveredBy(fingerprint="f1", what="n1: Node stopped reporting")),
    ]
    critical, warning, info, over, covered = (attachment(payload(m))["color"] for m in said)
    assert len({critical, warning, info, over}) == 4
    assert covered not in {over, critical, warning}


@pytest.mark.parametrize(
    ("notice", "start"),
    [
        (noticed(changed(**REAL_GPU), Kind.UPDATED), "Update: "),
        (
            replace(noticed(changed(**REAL_GPU), Kind.UPDATED), verdict=Verdict.STILL_STANDING),
            "Still there after 12 min: ",
        ),
        (noticed(resolved(at=LATER, **REAL_GPU), Kind.RESOLVED), "Resolved after 12 min: "),
    ],
)
def test_what_follows_is_known_by_the_same_title(notice: Notice, start: str) -> None:
    follow_up = header(payload(message(notice, LATER, URL)))
    assert follow_up.removesuffix(" (critical)") == start + told().summary


HOSTILE = [
    "<!channel>",
    "<@U123>",
    "<https://evil.example|job>",
    "*bold* _italic_ ~gone~ `code` ```block```",
    "> quote & more",
    ":fire: @here #general",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_what_strangers_named_their_jobs_stays_text(name: str) -> None:
    value = payload(told(impact=Impact(gpus=1, holders=(name,), users=(name,))))
    where_it_is = [line for line in lines(value) if line.startswith("Impact: ")]
    assert html.unescape(where_it_is[0]) == f"Impact: 1 GPU blocked; allocated to {name} ({name})"
    assert "<" not in where_it_is[0]
    # Only our own links are markup; the notification's text is told to be none.
    blocks = attachment(value)["blocks"]
    assert [block["text"]["type"] for block in blocks] == ["plain_text"] * 5 + ["mrkdwn"]
    assert not any(block["text"].get("emoji", False) for block in blocks)
    assert value["mrkdwn"] is False


def test_256_gpus_make_one_short_message() -> None:
    members = tuple(f"lab/n{n // 8}/gpu/GPU-{n:032d}" for n in range(256))
    evidence = tuple(Evidence(name=f"GPU {n}", value="0 %") for n in range(256))
    impact = Impact(gpus=256, holders=("job 1",) * 256, users=("alice",) * 256)
    said = told(members=members, evidence=evidence, impact=impact)
    value = payload(said)
    assert_within_limits(value)
    assert "and 246 more" in lines(value)[3]


TEXT = st.one_of(
    st.text(max_size=40),
    st.sampled_from(HOSTILE),
    st.sampled_from(["&", "<", '"', "\\", "東", "🔥", "a "]).map(lambda sign: sign * 1200),
)
NAME = TEXT.filter(bool)
SUBJECTS = st.one_of(
    st.builds(Subject, cluster=NAME, node=NAME),
    st.builds(Subject, cluster=NAME, node=NAME, gpu=NAME),
    st.builds(Subject, cluster=NAME, node=NAME, device=NAME, port=NAME),
)


# How fast examples are made says nothing about the messages.
@pytest.mark.medium
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    subject=SUBJECTS,
    texts=st.lists(TEXT, min_size=4, max_size=4),
    many=st.lists(TEXT, max_size=12),
    over=st.booleans(),
)
@example(subject=Subject(cluster="c", node="n"), texts=["", " ", "", ""], many=[], over=False)
def test_any_message_is_one_that_slack_takes(
    subject: Subject, texts: list[str], many: list[str], over: bool
) -> None:
    title, label, action, impact = texts
    changes: dict[str, Any] = {
        "subject": subject,
        "title": title,
        "label": label,
        "action": action,
        "impact": Impact(gpus=len(many), holders=tuple(many), users=tuple(many), text=impact),
        "evidence": tuple(Evidence(name=one, value=one) for one in many),
        "covers": tuple(many),
    }
    story = resolved(at=LATER, **changes) if over else opened(**changes)
    notice = noticed(story, Kind.RESOLVED if over else Kind.FIRED)
    assert_within_limits(payload(message(notice, LATER, URL)))


def assert_within_limits(value: dict[str, Any]) -> None:
    assert 0 < len(header(value)) <= 150
    blocks = attachment(value)["blocks"]
    assert 0 < len(blocks) <= 50
    texts = [value["text"], header(value), *lines(value)[:-1]]
    assert all(0 < len(text) <= 3000 for text in lines(value))
    assert len(json.dumps(value, ensure_ascii=False)) < 12_000
    for text in texts:
        assert not re.search(r"[<>]|&(?!amp;|lt;|gt;)", text)
    links = re.sub(r"<https://gpus\.example\.org/[^<>|\s]+\|[A-Z][A-Za-z ]+>", "", lines(value)[-1])
    assert links in {"", "  |  "}


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=TEXT, longest=st.integers(1, 200))
def test_escaping_cuts_between_characters_and_keeps_the_text(text: str, longest: int) -> None:
    cut = escaped(text, longest)
    assert len(cut) <= longest
    shown = html.unescape(cut.replace("&amp;", "&amp;amp;")).replace("&amp;", "&")
    assert shown == text or text.startswith(shown[:-1])


def test_a_long_title_fills_the_header_and_no_more() -> None:
    value = payload(told(title="x" * 150, label="y" * 100))
    assert len(header(value)) == LONGEST_HEADER
    assert header(value).endswith("… (critical)")


def deliver(url: str, timeout_seconds: float = 5.0) -> Outcome:
    channel = slack(SlackSettings(url=url, timeout_seconds=timeout_seconds), URL)
    try:
        return channel.deliver(told())
    finally:
        channel.close()


SAYS = "127.0.0.1 answered"


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answer(200, body=b"ok"), Delivered()),
        (too_many(30), Retry(reason=f"{SAYS} 429", after_seconds=30.0)),
        (
            Answer(429, {"Retry-After": "5"}, b"rate_limited"),
            Retry(reason=f"{SAYS} 429 rate_limited", after_seconds=5.0),
        ),
        (
            Answer(500, body=b"rollup_error"),
            Retry(reason=f"{SAYS} 500 rollup_error", perhaps_received=True),
        ),
        (
            Answer(400, body=b"invalid_payload"),
            Refused(
                reason=f"{SAYS} 400 invalid_payload: Slack does not understand the message;"
                " please report it as a bug"
            ),
        ),
        (
            Answer(404, body=b"no_service"),
            Retry(
                reason=f"{SAYS} 404 no_service: the webhook is gone or switched off: make a new"
                " one and put its URL in url_file"
            ),
        ),
        (
            Answer(410, body=b"channel_is_archived"),
            Retry(
                reason=f"{SAYS} 410 channel_is_archived: the channel is archived: unarchive it,"
                " or make a webhook for another"
            ),
        ),
        (
            Answer(403, body=b"action_prohibited"),
            Retry(
                reason=f"{SAYS} 403 action_prohibited: the workspace does not let it post there:"
                " ask one of its administrators"
            ),
        ),
    ],
)
def test_each_answer_of_slack_is_judged_by_its_word(
    receiver: Receiver, answer: Answer, outcome: Outcome
) -> None:
    receiver.answer(answer)
    assert deliver(receiver.url) == outcome


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (403, "invalid_token"),
        (404, "channel_not_found"),
        (404, "no_active_hooks"),
        (404, "no_team"),
        (403, "posting_to_general_channel_denied"),
    ],
)
def test_what_somebody_can_mend_is_tried_until_then(status: int, word: str) -> None:
    outcome = judge(Answered(host="hooks.slack.com", status=status, at=NOON, word=word))
    assert isinstance(outcome, Retry)
    assert not outcome.perhaps_received
    assert outcome.reason.startswith(f"hooks.slack.com answered {status} {word}: ")


@pytest.mark.parametrize("word", ["no_text", "invalid_blocks", "too_many_attachments"])
def test_what_is_wrong_with_the_message_is_refused_for_good(word: str) -> None:
    assert isinstance(judge(Answered(host="h", status=400, at=NOON, word=word)), Refused)


def test_a_message_leaves_room_for_slack_s_limit_of_one_a_second() -> None:
    channel = slack(SlackSettings(url="http://127.0.0.1:1/"), URL)
    assert (channel.pace.burst, channel.pace.per_second) == (1, 1.0)
    channel.close()


def test_owners_are_mentioned_by_their_member_ids_and_nobody_else(tmp_path: Path) -> None:
    file = tmp_path / "members"
    file.write_text("# who is who\nalice U0123ABCD\n\nbob W0123ABCD  # of the enterprise\n")
    settings = SlackSettings(url="https://hooks.slack.com/services/x", mentions_file=file)
    said = replace(told(), for_owners=("alice", "<!channel>", "bob", "alice"))
    channel = slack(settings, URL)
    assert channel.profile.owners
    channel.close()
    value = payload(said, mentioned(said, settings))
    assert value["blocks"][1]["text"] == {"type": "mrkdwn", "text": "For <@U0123ABCD> <@W0123ABCD>"}
    assert "<!channel>" not in json.dumps(value)
    assert mentioned(told(), SlackSettings(url="https://hooks.slack.com/services/x")) == []


@pytest.mark.parametrize("bot", [False, True])
def test_what_is_for_an_owner_alone_is_not_told_to_a_room_without_that_one(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, bot: bool
) -> None:
    file = tmp_path / "members"
    file.write_text("bob U0123ABCD\n")
    monkeypatch.setenv("SLACK_TOKEN", "xoxb-secret")
    by_bot = SlackSettings(
        token_variable="SLACK_TOKEN", channel="C1", api_url=receiver.url, mentions_file=file
    )
    by_url = SlackSettings(url=receiver.url, mentions_file=file)
    channel = SlackBot(by_bot) if bot else slack(by_url, URL)
    alone = replace(told(), incident="idle-1-notice-1", for_owners=("alice",))
    refused = channel.deliver(alone)
    assert isinstance(refused, Refused)
    assert refused.reason.startswith("no owner of it is in mentions_file")
    assert receiver.received() == []
    receiver.answer(Answer(200, body=b'{"ok": true, "ts": "1.5"}'))
    assert isinstance(channel.deliver(replace(alone, for_owners=("bob",))), Delivered)
    file.unlink()  # it is being replaced
    assert isinstance(channel.deliver(alone), Retry)
    channel.close()


@pytest.mark.parametrize("line", ["alice", "alice @alice", "alice U0123ABCD more", "alice <!here>"])
def test_a_file_of_members_that_cannot_be_one_is_refused_at_start(
    tmp_path: Path, line: str
) -> None:
    file = tmp_path / "members"
    file.write_text(f"bob U0123ABCE\n{line}\n")
    with pytest.raises(ConfigError, match="line 2"):
        slack(SlackSettings(url="https://hooks.slack.com/services/x", mentions_file=file), URL)
