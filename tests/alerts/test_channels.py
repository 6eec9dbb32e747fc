"""Each channel says the same in its own form, within its limits, and takes no name for markup."""

import hashlib
import hmac
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alerts.channels.command import Command
from alerts.channels.discord import discord
from alerts.channels.discord import payload as discord_payload
from alerts.channels.discord import posts as discord_posts
from alerts.channels.email import email, letter, letters, owner_addresses
from alerts.channels.pagerduty import payload as pagerduty_payload
from alerts.channels.shared_parts import links, title
from alerts.channels.slack import payload as slack_payload
from alerts.channels.slack_bot import SlackBot
from alerts.channels.teams import payload as teams_payload
from alerts.channels.webhook import SIGNATURE, TIME, payload, webhook
from alerts.messages.channel import Bucket, Delivered, Outcome, Pace, Refused, Retry
from alerts.messages.message import Message, message
from alerts.routing.notice import Kind, Verdict
from gpuvigil.config import (
    CommandSettings,
    DiscordSettings,
    EmailSettings,
    SlackSettings,
    WebhookSettings,
)
from gpuvigil.errors import ConfigError
from gpuvigil.model import Evidence, Impact, Severity
from gpuvigil.web.signed_links import PATH, Seal
from tests.receiver import Answer, Receiver

from .examples import NOON, REAL, changed, opened, resolved, seconds
from .test_message import noticed

URL = "https://gpus.example.org"
LATER = NOON + seconds(720)
REAL_GPU: dict[str, Any] = {"subject": REAL, "label": "n1 GPU 5"}
HOSTILE = "<!channel> @everyone [x](https://evil.example) *b* _i_ `c` <@1> ~s~ # h\n- l | t"
MAIL = EmailSettings(server="127.0.0.1", sender="gpus@example.org", to=("ops@example.org",))

# The limit of each form in bytes: a Teams card counts twice, and has 28 KB.
FORMS: dict[str, tuple[Callable[[Message], Any], int]] = {
    "slack": (slack_payload, 24_000),
    "teams": (teams_payload, 14_000),
    "discord": (discord_payload, 24_000),
    "pagerduty": (lambda m: pagerduty_payload(m, "r" * 32, URL), 100_000),
    "webhook": (lambda m: payload(m, "hook", URL), 100_000),
    "email": (lambda m: letter(m, MAIL, ["ops@example.org"]).get_content(), 100_000),
}


@pytest.fixture(params=sorted(FORMS))
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def told(**changes: Any) -> Message:
    return message(noticed(opened(**{**REAL_GPU, **changes}), Kind.FIRED), LATER, URL)


@pytest.mark.parametrize("name", sorted(FORMS))
def test_every_form_says_whose_jobs_are_hit_and_where_the_runbook_is(name: str) -> None:
    impact = Impact(gpus=1, text="job 7 of ada waits", accounts=("vision",), partitions=("a100",))
    notice = noticed(opened(**REAL_GPU, impact=impact), Kind.FIRED)
    form = FORMS[name][0]
    said = json.dumps(form(message(notice, LATER, URL, runbook_url="https://w.example/{fault}")))
    assert "job 7 of ada waits; account vision; partition a100" in said
    assert "https://w.example/gpu_lost" in said
    assert "unbook" not in json.dumps(form(message(notice, LATER, URL)))


def ended() -> Message:
    return message(noticed(resolved(at=LATER, **REAL_GPU), Kind.RESOLVED), LATER, URL)


def of_256() -> Message:
    return told(
        title="Switch leaf-3 failed",
        label="leaf-3",
        members=tuple(f"lab/n{n // 8:02d}/gpu/GPU-{n:032d}" for n in range(256)),
        evidence=tuple(Evidence(name=f"GPU {n}", value="no traffic") for n in range(256)),
        impact=Impact(
            gpus=256,
            holders=tuple(f"job {n}" for n in range(256)),
            users=tuple(f"user{n}" for n in range(256)),
        ),
    )


def written(form: str, said: Message) -> str:
    made = FORMS[form][0](said)
    return made if isinstance(made, str) else json.dumps(made, ensure_ascii=False)


def test_what_matters_is_said_in_the_fixed_order(form: str) -> None:
    text = written(form, told())
    if form in {"webhook", "pagerduty"}:  # their readers have names for it
        text = text[text.index("GPU fell off the bus") :] + text
    places = [text.index(part) for part in ("GPU fell off the bus", "job 1234", "Drain the node")]
    assert places == sorted(places)
    assert "/incidents?incident=i-1" in text
    assert "from=2026-11-20T11%3A30%3A00Z" in text.replace("&amp;", "&")


@pytest.mark.medium
def test_256_gpus_make_one_message_within_the_limit_with_ten_and_how_many_more(form: str) -> None:
    text = written(form, of_256())
    assert len(text.encode()) < FORMS[form][1]
    assert "246 more" in text
    assert text.count("GPU-000") <= 45  # of each list, and what repeats it, ten


@pytest.mark.medium
@pytest.mark.parametrize("sign", ["東", "🔥", "\\", "*", "&", '"'])
def test_names_of_any_length_and_script_stay_within_the_limit(form: str, sign: str) -> None:
    long = sign * 1500
    said = told(
        title=long,
        label=long,
        action=long,
        impact=Impact(gpus=12, holders=(long,) * 12, users=(long,) * 12),
        evidence=tuple(Evidence(name=long, value=long) for _ in range(12)),
    )
    assert len(written(form, said).encode()) < FORMS[form][1]
    if form == "discord":
        (embed,) = discord_payload(said)["embeds"]
        values = [text for field in embed["fields"] for text in field.values()]
        assert len(embed["title"]) <= 256
        assert all(len(text) <= 1024 for text in values)
        assert len(embed["title"]) + sum(map(len, values)) <= 6000


def test_what_strangers_named_their_jobs_is_no_markup_and_calls_nobody() -> None:
    said = told(impact=Impact(gpus=1, holders=(HOSTILE,), users=()))
    card = teams_payload(said)["attachments"][0]["content"]
    (line,) = [one["text"] for one in card["body"][1:] if one["text"].startswith("**Impact")]
    assert re.search(r"(?<!\\)[\[\]*_`<~#]", line.removeprefix("**Impact:** ")) is None
    value = discord_payload(said)
    assert value["allowed_mentions"] == {"parse": []}
    (impact,) = [f["value"] for f in value["embeds"][0]["fields"] if f["name"] == "Impact"]
    assert re.search(r"(?<!\\)[\[\]*_`<~#@]", impact) is None


def test_no_name_can_write_a_header_of_an_email() -> None:
    made = letter(told(title="x\r\nBcc: all@example.org"), MAIL, ["ops@example.org"])
    assert made["Bcc"] is None
    assert "\n" not in made["Subject"]


def test_what_is_about_one_incident_is_one_thread_and_a_repetition_is_the_same_mail() -> None:
    first, again = (letter(told(), MAIL, ["ops@example.org"]) for _ in range(2))
    end = letter(ended(), MAIL, ["ops@example.org"])
    assert first["Message-ID"] == again["Message-ID"] != end["Message-ID"]
    assert first["References"] == end["References"] == end["In-Reply-To"]


def test_owners_are_written_to_only_where_their_name_can_be_one() -> None:
    owned = replace(MAIL, to=(), owner_domain="lab.example")
    said = replace(told(), for_owners=("alice", "bob@evil.example", "x\nBcc:y", "alice", "ada.l"))
    assert owner_addresses(said, owned) == ["alice@lab.example", "ada.l@lab.example"]
    template = replace(MAIL, owner_address="gpu+{user}@lab.example")
    theirs = ["gpu+alice@lab.example", "gpu+ada.l@lab.example"]
    assert [readers for _, readers in letters(said, template)] == [list(MAIL.to), theirs]
    (alone,) = letters(replace(said, owners_only=True), template)
    assert alone[1] == theirs


@pytest.mark.parametrize("severity", ["critical", "warning", "info"])
def test_how_bad_it_is_stands_in_the_title_and_not_in_a_colour_alone(severity: str) -> None:
    said = told(severity=Severity(severity))
    mark = "" if severity == "info" else f" ({severity})"
    assert title(said, 200) == f"{said.summary}{mark}"
    for longest in (40, 60):
        assert len(title(said, longest)) <= longest
        assert title(said, longest).endswith(mark)
    worse = replace(said, worse=True, summary=f"Now {severity}: {said.summary}")
    assert title(worse, 200) == worse.summary + (mark if severity == "info" else "")
    assert title(ended(), 200) == ended().summary


def test_owners_get_a_letter_of_their_own_without_the_links_of_those_who_run_the_machines() -> None:
    both = replace(MAIL, owner_domain="example.org")
    said = replace(told(), answer_link="https://x.org/answer/1", for_owners=("alice", "ops"))
    (ours, to_us), (theirs, to_them) = letters(said, both)
    assert (to_us, to_them) == (["ops@example.org"], ["alice@example.org"])
    assert "https://x.org/answer/1?do=silence" in ours.get_content()
    assert "answer" not in theirs.get_content()
    assert ours["Message-ID"] != theirs["Message-ID"]
    assert ours["References"] == theirs["References"]


def test_pagerduty_knows_an_incident_by_one_key_from_its_beginning_to_its_end() -> None:
    begun, end = (pagerduty_payload(m, "r" * 32, URL) for m in (told(), ended()))
    assert (begun["event_action"], end["event_action"]) == ("trigger", "resolve")
    assert begun["dedup_key"] == end["dedup_key"]
    assert begun["payload"]["severity"] == "critical"


def test_a_signed_post_proves_who_sent_it_and_when(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("hush\n", encoding="utf-8")
    with Receiver() as receiver:
        channel = webhook(WebhookSettings(url=receiver.url, secret_file=file), URL)
        channel.deliver(told())
        file.write_text("other\n", encoding="utf-8")
        channel.deliver(told())
        file.unlink()
        missing = channel.deliver(told())
        channel.close()
        received = receiver.received()
    assert isinstance(missing, Retry)
    assert len(received) == 2
    for got, secret in zip(received, (b"hush", b"other"), strict=True):
        text = got.headers[TIME].encode() + b"." + got.body
        proof = hmac.new(secret, text, hashlib.sha256).hexdigest()
        assert got.headers[SIGNATURE] == f"sha256={proof}"


def bot(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> SlackBot:
    monkeypatch.setenv("SLACK_TOKEN", "xoxb-secret")
    return SlackBot(SlackSettings(token_variable="SLACK_TOKEN", channel="C1", api_url=receiver.url))


def said(**value: Any) -> Answer:
    return Answer(200, body=json.dumps(value).encode())


def test_a_bot_brings_its_message_up_to_date_and_says_the_end_in_its_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Receiver() as receiver:
        channel = bot(receiver, monkeypatch)
        receiver.answer(said(ok=True, ts="1.5"))
        assert channel.deliver(told()) == Delivered(receipt="1.5")
        receiver.answer(said(ok=True, ts="1.5"), said(ok=True, ts="2.0"))
        assert channel.deliver(replace(ended(), receipt="1.5")) == Delivered(receipt="1.5")
        channel.close()
        first, update, reply = receiver.received()
    assert [one.path.rpartition("/")[2] for one in (first, update, reply)] == [
        "chat.postMessage",
        "chat.update",
        "chat.postMessage",
    ]
    assert update.payload["ts"] == reply.payload["thread_ts"] == "1.5"
    assert reply.payload["text"].startswith("Resolved after 12 min: ")
    assert first.headers["Authorization"] == "Bearer xoxb-secret"
    assert "xoxb" not in first.body.decode()


def test_a_bot_brings_up_to_date_who_is_hit_and_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Receiver() as receiver:
        channel = bot(receiver, monkeypatch)
        assert channel.profile.every_change
        receiver.answer(said(ok=True, ts="1.5"))
        quiet = replace(told(), receipt="1.5", news=False, loud=False)
        assert channel.deliver(quiet) == Delivered(receipt="1.5")
        channel.close()
        (update,) = receiver.received()
    assert update.path.endswith("chat.update")


def test_what_became_part_of_a_larger_fault_is_brought_up_to_date_in_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A port that was told before its switch was known; nothing is said loudly of it."""
    covered = replace(ended(), covered=True, loud=False, receipt="1.5", summary="Covered by it")
    with Receiver() as receiver:
        channel = bot(receiver, monkeypatch)
        receiver.answer(said(ok=True, ts="1.5"), said(ok=True, ts="2.0"))
        assert channel.deliver(covered) == Delivered(receipt="1.5")
        channel.close()
        update, reply = receiver.received()
    assert (update.path.rpartition("/")[2], update.payload["ts"]) == ("chat.update", "1.5")
    assert (reply.payload["thread_ts"], reply.payload["reply_broadcast"]) == ("1.5", False)
    (edited,) = discord_posts(covered)
    assert (edited.method, edited.path) == ("PATCH", "/messages/1.5")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("invalid_auth", Retry),
        ("not_in_channel", Retry),
        ("ratelimited", Retry),
        ("invalid_blocks", Refused),
        ("Your secret is xoxb", Retry),
    ],
)
def test_what_slack_does_not_take_from_a_bot_is_said_by_its_word(
    error: str, kind: type[Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Receiver() as receiver:
        receiver.answer(said(ok=False, error=error))
        channel = bot(receiver, monkeypatch)
        outcome = channel.deliver(told())
        channel.close()
    assert isinstance(outcome, kind)
    assert "xoxb" not in repr(outcome)


def test_a_message_that_somebody_deleted_is_posted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as receiver:
        receiver.answer(said(ok=False, error="message_not_found"), said(ok=True, ts="9"))
        channel = bot(receiver, monkeypatch)
        outcome = channel.deliver(replace(ended(), receipt="1.5"))
        channel.close()
        assert len(receiver.received()) == 2
    assert outcome == Delivered(receipt="9")


def test_discord_edits_what_merely_changed_and_posts_what_is_worth_a_sound() -> None:
    update = message(noticed(changed(**REAL_GPU), Kind.UPDATED), LATER, URL, "42")
    with Receiver() as receiver:
        receiver.answer(Answer(200, body=b'{"id": "42"}'))
        channel = discord(DiscordSettings(url=f"{receiver.url}/1/tok?thread_id=7"), URL)
        assert channel.deliver(told()) == Delivered(receipt="42")
        assert channel.deliver(update) == Delivered(receipt="42")
        assert channel.deliver(replace(update, loud=True)) == Delivered(receipt="42")
        channel.close()
        places = [one.path for one in receiver.received()]
    assert places == [
        "/hook/1/tok?thread_id=7&wait=true",
        "/hook/1/tok/messages/42?thread_id=7",
        "/hook/1/tok?thread_id=7&wait=true",
    ]


def test_discord_says_in_its_body_when_to_come_back() -> None:
    with Receiver() as receiver:
        receiver.answer(Answer(429, body=b'{"retry_after": 2.5, "global": false}'))
        channel = discord(DiscordSettings(url=receiver.url), URL)
        outcome = channel.deliver(told())
        channel.close()
    assert outcome == Retry(reason="127.0.0.1 answered 429", after_seconds=2.5)


def program(tmp_path: Path, text: str) -> str:
    path = tmp_path / "tell"
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o700)
    return str(path)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("cat > heard; env > seen", Delivered),
        ("exit 65", Refused),
        ("exit 1", Retry),
        ("sleep 60 & wait", Retry),
        ("kill -9 $$", Retry),
    ],
)
def test_a_program_says_by_its_exit_code_how_it_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, kind: type[Outcome]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUVIGIL_SECRET", "hush")
    settings = CommandSettings(command=(program(tmp_path, text),), timeout_seconds=0.5)
    if kind is Delivered:
        settings = replace(settings, timeout_seconds=30.0)
    channel = Command(settings, URL)
    assert isinstance(channel.deliver(told()), kind)
    if kind is Delivered:
        heard = json.loads((tmp_path / "heard").read_text(encoding="utf-8"))
        assert heard["alerts"][0]["annotations"]["summary"] == told().summary
        assert "hush" not in (tmp_path / "seen").read_text(encoding="utf-8")


def test_a_program_that_is_not_there_is_said_at_start() -> None:
    with pytest.raises(ConfigError, match="/no/such"):
        Command(CommandSettings(command=("/no/such",)), URL)


def test_mail_that_anybody_on_the_way_could_read_is_not_sent() -> None:
    with pytest.raises(ConfigError, match="starttls"):
        email(replace(MAIL, server="mail.example.org", security="none"), URL)


def test_a_bucket_lets_a_burst_through_and_then_its_pace() -> None:
    bucket = Bucket.full(Pace(burst=2, per_second=0.5), 100.0)
    for _ in range(2):
        assert bucket.wait_seconds(100.0) == 0.0
        bucket = bucket.take(100.0)
    assert bucket.wait_seconds(100.0) == 2.0
    assert bucket.wait_seconds(101.5) == 0.5
    assert bucket.wait_seconds(102.0) == 0.0
    assert bucket.take(1e6).wait_seconds(1e6) == 0.0


def test_what_is_new_or_worse_is_loud_and_what_changed_is_not() -> None:
    update = noticed(changed(**REAL_GPU), Kind.UPDATED)
    assert told().loud
    assert not message(update, LATER, URL).loud
    assert message(replace(update, verdict=Verdict.WORSE), LATER, URL).loud
    assert not ended().loud


def test_with_a_key_a_message_offers_to_acknowledge_to_silence_and_to_say_what_it_was_worth() -> (
    None
):
    seal = Seal(lambda: "k" * 40)
    begun = message(noticed(opened(**REAL_GPU), Kind.FIRED), LATER, URL, seal=seal)
    names = [name for name, _ in links(begun)]
    assert names[1:] == ["Acknowledge", "Silence 4 h", "The whole story", "Useful or noise?"]
    address = dict(links(begun))["Acknowledge"]
    token = address.removeprefix(f"{URL}{PATH}").partition("?")[0]
    offer = seal.opened(token, LATER)
    assert offer is not None
    assert offer.incident == "i-1"
    for form, (made, limit) in FORMS.items():
        written_ = made(begun)
        text = written_ if isinstance(written_, str) else json.dumps(written_)
        assert address.partition("?")[0] in text, form
        assert len(text.encode()) < limit
