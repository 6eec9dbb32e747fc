"""Reports that come by themselves, with a real hub and a real mail server; the sender is killed on its way."""

import json
import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from socket import create_server
from typing import Any

import pytest
from aiosmtpd.controller import Controller

from gpuvigil.clock import EPOCH, ManualClock, SystemClock, moment
from gpuvigil.config import (
    AlertsSettings,
    Config,
    CostSettings,
    EmailSettings,
    HubSettings,
    PriceSettings,
    ReportSettings,
    SlackSettings,
)
from gpuvigil.hub_client import Hub, service_hubs
from gpuvigil.log import Log
from gpuvigil.model import RecordKind
from gpuvigil.model.report_run import LetterState, ReportRun
from report.schedule_command import listed, sent
from report.schedule_command import main as command
from report.scheduled.archive import letters_of, runs
from report.scheduled.cron import parsed
from report.scheduled.schedule import final_of, planned, so_far
from report.scheduled.sending import ReportRunner
from tests.alerts.mailbox import Mailbox
from tests.receiver import Receiver
from tests.report.weeks import inventory, share, usage
from tests.servers import HubProcess, QuickHub

pytestmark = pytest.mark.server

READERS = ("vp@x.org", "lead@x.org", "ops@x.org")
# The hub goes by its own clock: the week that was over last.
MONDAY = parsed("0 7 * * 1", "UTC").last(SystemClock().now()) or EPOCH
LEASE_SECONDS = 0.4
_OPEN: list[Hub] = []


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with QuickHub(tmp_path_factory.mktemp("reports")) as process:
        start, end = MONDAY - timedelta(days=7, hours=7), MONDAY - timedelta(hours=7)
        held = [
            share("job 1", "ann", 3, quiet=0.5, account="vision"),
            share("job 2", "bob", 2, account="speech"),
        ]
        buckets = usage(held, start=start, end=end).buckets[:96]
        process.hub().write_records([inventory().to_record(), *(it.to_record() for it in buckets)])
        yield process
        while _OPEN:
            _OPEN.pop().close()


@pytest.fixture
def mailbox() -> Iterator[tuple[Mailbox, int]]:
    with closing(create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    box = Mailbox()
    controller = Controller(box, hostname="127.0.0.1", port=port)
    controller.start()
    yield box, port
    controller.stop()


def config_of(hub: HubProcess, port: int, *reports: ReportSettings, **alerts: Any) -> Config:
    mail = EmailSettings(
        server="127.0.0.1", port=port, security="none", sender="gpus@example.org", to=("o@x.org",)
    )
    return Config(
        hub=HubSettings(url=hub.url, service_token_file=hub.service_token_file),
        alerts=AlertsSettings(email=(mail,), external_url="https://gpus.example", **alerts),
        reports=reports,
    )


def office(config: Config, lease: float = 60.0) -> ReportRunner:
    hub = service_hubs(config.hub)()
    _OPEN.append(hub)
    return ReportRunner(
        hub=hub,
        config=config,
        clock=SystemClock(),
        log=Log("report"),
        lease_seconds=lease,
        retry_after=timedelta(seconds=1),
    )


def until_done(desk: ReportRunner) -> None:
    """All that is due now."""
    for _ in range(10):
        if not desk.step():
            return
    raise AssertionError("it is due again and again")


def weekly(name: str, **more: Any) -> ReportSettings:
    return ReportSettings(name=name, channel="email", to=READERS[:1], **more)


def begun(desk: ReportRunner, name: str) -> None:
    """As if it had been there the week before."""
    past = ReportRun(name=name, due_at=MONDAY - timedelta(days=21))
    desk.hub.write_records([past.to_record(1)])


def test_a_report_is_made_when_it_is_due_and_goes_to_each_once(
    fed: HubProcess, mailbox: tuple[Mailbox, int]
) -> None:
    box, port = mailbox
    config = config_of(fed, port, weekly("due"))
    desk = office(config)
    begun(desk, "due")
    until_done(desk)
    until_done(office(config))
    ((_, mail),) = box.mails
    week = (MONDAY - timedelta(days=7)).isocalendar()
    began = f"GPU report, cluster alpha, Week {week.week} of {week.year}: "
    assert mail["Subject"].strip().startswith(began)
    assert mail["X-Gpuvigil-Perhaps-Again"] is None
    html, pdf = mail.iter_attachments()
    assert html.get_content_type() == "text/html"
    assert "By team" in html.get_content()
    assert pdf.get_content().startswith(b"%PDF")
    text = mail.get_body(("plain",)).get_content()
    assert f"https://gpus.example/reports?report=due%7C{MONDAY:%Y-%m-%dT%H}" in text
    lines = list(listed(config, desk.hub, MONDAY))
    assert lines[0].startswith(f"due: next {moment(MONDAY + timedelta(days=7))}")
    assert "vp@x.org sent" in next(line for line in lines[1:] if "  due  " in line)


def test_of_missed_runs_the_last_is_made_up_for_once(
    fed: HubProcess, mailbox: tuple[Mailbox, int]
) -> None:
    box, port = mailbox
    desk = office(config_of(fed, port, weekly("missed")))
    begun(desk, "missed")  # three weeks before
    until_done(desk)
    until_done(desk)
    assert len(box.mails) == 1
    made = [one.due_at for one in runs(desk.hub) if one.name == "missed" and one.html]
    assert made == [MONDAY]


def test_a_new_report_sends_nothing_of_the_past(
    fed: HubProcess, mailbox: tuple[Mailbox, int]
) -> None:
    box, port = mailbox
    desk = office(config_of(fed, port, weekly("new")))
    until_done(desk)
    until_done(desk)
    assert box.mails == []
    desk.due_now(weekly("new"))
    until_done(desk)
    assert len(box.mails) == 1


def test_a_team_gets_its_own_and_nothing_of_others(
    fed: HubProcess, mailbox: tuple[Mailbox, int]
) -> None:
    box, port = mailbox
    config = config_of(fed, port, weekly("team", team="vision"))
    # From a day before the next one is due on there is a preview of it, too.
    desk = replace(office(config), clock=ManualClock(MONDAY + timedelta(hours=1)))
    begun(desk, "team")
    until_done(desk)
    ((_, mail),) = box.mails
    html = next(iter(mail.iter_attachments())).get_content()
    for text in (html, mail.get_body(("plain",)).get_content()):
        assert "vision had" in text
        assert "bob" not in text
        assert "speech" not in text
    assert "job 1" in html
    assert "job 2" not in html


def test_a_team_sees_its_own_a_day_before_and_everybody_has_the_report_when_it_is_due(
    fed: HubProcess, mailbox: tuple[Mailbox, int]
) -> None:
    box, port = mailbox
    theirs = replace(weekly("theirs", team="vision"), to=READERS[1:2])
    config = config_of(fed, port, weekly("whole"), theirs)
    clock = ManualClock(MONDAY - timedelta(hours=24, seconds=1))
    desk = replace(office(config), clock=clock)
    for name in ("whole", "theirs"):
        last = ReportRun(name=name, due_at=MONDAY - timedelta(days=7))
        desk.hub.write_records([last.to_record(1)])
    until_done(desk)
    assert box.mails == []
    clock.step(1.0)
    until_done(desk)
    until_done(office(replace(config, reports=())))  # another has nothing to do
    ((_, preview),) = box.mails
    assert preview["To"] == READERS[1]
    assert preview["Subject"].startswith("Preview: GPU report, cluster alpha, team vision, Week")
    said = f"Preliminary until Monday, {MONDAY.day} {MONDAY:%B}, 07:00 (UTC)"
    html = next(iter(preview.iter_attachments())).get_content()
    for text in (html, preview.get_body(("plain",)).get_content()):
        assert said in " ".join(text.split())
        assert "so far" in text
        assert "speech" not in text
    clock.step(24 * 3600.0 - 1.0)
    until_done(desk)
    assert len(box.mails) == 1
    clock.step(1.0)
    until_done(desk)
    until_done(desk)
    assert to_whom(box) == Counter({READERS[1]: 2, READERS[0]: 1})
    finals = [mail for _, mail in box.mails[1:]]
    assert all("Preview" not in mail["Subject"] for mail in finals)
    assert all(
        "reliminary" not in mail.get_body(("plain",)).get_content()
        and "Since the report made" not in mail.get_body(("plain",)).get_content()
        for mail in finals
    )
    lines = list(listed(config, desk.hub, MONDAY))
    assert "preview" not in lines[0]
    assert ", a preview 24 h before, to lead@x.org" in lines[1]
    assert any(", a preview: lead@x.org sent" in line for line in lines[2:])


def test_a_preview_that_nobody_took_in_time_goes_to_nobody(
    fed: HubProcess, mailbox: tuple[Mailbox, int]
) -> None:
    box, port = mailbox
    config = config_of(fed, port, weekly("late", team="vision"))
    clock = ManualClock(MONDAY - timedelta(seconds=1))
    desk = replace(office(config), clock=clock)
    last = ReportRun(name="late", due_at=MONDAY - timedelta(days=7))
    desk.hub.write_records([last.to_record(1)])
    desk._plan(config.reports[0], clock.now())
    clock.step(1.0)
    until_done(desk)
    (mail,) = (mail for _, mail in box.mails)
    assert mail["Subject"].startswith("GPU report")


def test_one_that_is_asked_for_before_its_time_is_of_what_is_known_and_goes_to_nobody(
    fed: HubProcess, mailbox: tuple[Mailbox, int]
) -> None:
    box, port = mailbox
    config = config_of(fed, port, weekly("early"))
    desk = replace(office(config), clock=ManualClock(MONDAY - timedelta(days=3)))
    run = ReportRun(name="early", due_at=desk.clock.now(), early=True)
    desk.hub.write_records([run.to_record(1, run.due_at)])
    until_done(desk)
    (made,) = [one for one in runs(desk.hub) if one.name == "early" and one.html]
    assert made.title == "Preview: GPU report, cluster alpha"
    assert f"Preliminary until Monday, {MONDAY.day} {MONDAY:%B}, 07:00" in made.summary
    assert (made.numbers, box.mails) == ((), [])
    assert any(", a preview: nobody to" in line for line in listed(config, desk.hub, MONDAY))


def test_an_early_one_is_of_a_whole_span_while_the_next_span_has_yet_to_begin() -> None:
    day = MONDAY - timedelta(hours=7)
    for settings, at, is_whole in (
        (ReportSettings(), day + timedelta(minutes=14), False),  # the week is over, and not yet due
        (ReportSettings(), day + timedelta(hours=8), False),
        (ReportSettings(cron="0 7 1 1 *"), datetime(2026, 6, 5, 12, tzinfo=timezone.utc), True),
        (
            ReportSettings(cron="0 7 1 * *", covers="month"),
            datetime(2026, 6, 5, 12, tzinfo=timezone.utc),
            False,
        ),
    ):
        run = ReportRun(name="weekly", due_at=at, early=True)
        (start, end), _ = so_far(settings, run, at)
        assert start < end <= at
        assert (final_of(settings, run) is None) == is_whole
        assert is_whole or end in {at, day}


@pytest.mark.parametrize(("hours", "team", "before"), [(0.0, "vision", []), (24.0, "", [])])
def test_without_a_team_or_hours_there_is_no_preview(
    hours: float, team: str, before: list[Any]
) -> None:
    settings = ReportSettings(name="w", team=team, preview_hours=hours)
    found = list(planned(settings, MONDAY - timedelta(seconds=1)))
    assert [one for one in found if one.final_at] == before
    assert [one.due_at for one in found] == [MONDAY - timedelta(days=7)]
    assert list(ReportSettings(preview_hours=0.0).wrong()) == []
    assert [key for key, _ in ReportSettings(preview_hours=-0.1).wrong()] == ["preview_hours"]


def test_made_again_it_says_what_is_not_as_it_was_kept_and_why(fed: HubProcess) -> None:
    settings = ReportSettings(name="again", days=14)  # for the archive alone
    config = config_of(fed, 1, settings)
    # A price is another number and no other data.
    cost = CostSettings(prices=(PriceSettings(per_gpu_hour=2.0),))
    cheap, dear = office(config), office(replace(config, cost=cost))
    until_done(cheap)  # the report is known from here on
    for desk in (cheap, dear):
        desk.due_now(settings)
        until_done(desk)
    second, first = [one.summary for one in runs(cheap.hub) if one.name == "again" and one.html]
    assert "Since the report made" not in first
    assert "Since the report made" in second
    assert "allocated but idle, EUR – → " in second
    assert "Prices changed." in second


def test_who_sends_one_now_is_told_what_it_is_where_it_lies_and_who_got_it(
    fed: HubProcess,
    mailbox: tuple[Mailbox, int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also where nobody is to get it: it printed nothing then."""
    file = tmp_path / "gpuvigil.toml"
    file.write_text(f"""
[hub]
url = "{fed.url}"
service_token_file = "{fed.service_token_file}"
[alerts]
external_url = "https://gpus.example/"
[[alerts.email]]
server = "127.0.0.1"
port = {mailbox[1]}
security = "none"
sender = "gpus@example.org"
to = ["o@x.org"]
[[reports]]
name = "kept"
cron = "0 7 1 1 *"
[[reports]]
name = "mailed"
cron = "0 7 1 1 *"
channel = "email"
to = ["{READERS[0]}"]
""")
    assert command("send", ["--config", str(file), "kept"]) == 0
    made, lies, whom = capsys.readouterr().out.splitlines()
    assert made.startswith("Made: GPU report, cluster alpha")
    assert lies.startswith("In the archive: https://gpus.example/reports?report=kept%7C")
    assert whom == "Sent to nobody: kept under [[reports]] has neither to nor link_to."
    assert command("send", ["--config", str(file), "mailed"]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [f"{READERS[0]}: sent"]


def test_what_another_process_works_on_is_not_said_to_be_made() -> None:
    run = ReportRun(name="weekly", due_at=MONDAY)
    (line,) = sent(Config(), ReportSettings(), run, {})
    assert line.startswith("weekly is not made yet: ")


def test_a_chat_is_told_where_it_is_once(fed: HubProcess, mailbox: tuple[Mailbox, int]) -> None:
    with Receiver() as chat:
        slack = SlackSettings(name="ops", url=chat.url, allow_http=True)
        settings = replace(weekly("chat", link_to=("ops", "nobody")), to=())
        config = config_of(fed, mailbox[1], settings, slack=(slack,))
        desk = office(config)
        begun(desk, "chat")
        until_done(desk)
        until_done(desk)
        (post,) = chat.received()
        assert "Open the report" in json.dumps(post.payload)
        assert "/reports?report=chat" in json.dumps(post.payload)
        run = next(one for one in runs(desk.hub) if one.name == "chat" and one.html)
        letters = letters_of(desk.hub, run)
        assert letters["channel ops"].state is LetterState.SENT
        assert letters["channel nobody"].state is LetterState.REFUSED
        assert letters["channel nobody"].reason == "there is no channel 'nobody'"


def test_who_does_not_take_it_now_gets_it_later_and_the_others_not_again(
    fed: HubProcess, mailbox: tuple[Mailbox, int]
) -> None:
    box, port = mailbox
    box.greylisted = {READERS[1]}
    config = config_of(fed, port, replace(weekly("grey"), to=READERS[:2]))
    desk = office(config)
    begun(desk, "grey")
    # One round: on a slow machine it is due again as soon as that is over.
    assert desk.step() == 1
    assert to_whom(box) == Counter({READERS[0]: 1})
    box.greylisted = set()
    time.sleep(1.1)
    until_done(office(config))
    assert to_whom(box) == Counter({READERS[0]: 1, READERS[1]: 1})
    assert all(mail["X-Gpuvigil-Perhaps-Again"] is None for _, mail in box.mails)


def to_whom(box: Mailbox) -> Counter[str]:
    return Counter(to for envelope, _ in box.mails for to in envelope.rcpt_tos)


def send_once(config: Config) -> None:
    """What the process does that is killed."""
    office(config, LEASE_SECONDS).step()


@pytest.mark.parametrize(
    "times", [8, pytest.param(50, marks=[pytest.mark.site, pytest.mark.slow])], ids=["few", "many"]
)
def test_whoever_is_killed_while_sending_each_reader_gets_it_once_or_is_told_that_it_may_be_twice(
    fed: HubProcess, mailbox: tuple[Mailbox, int], tmp_path: Path, times: int
) -> None:
    box, port = mailbox
    settings = replace(weekly("killed", cron="0 0 29 2 *"), to=READERS)
    config = config_of(fed, port, settings)
    desk = office(config)
    until_done(desk)  # the report is known from here on
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.report.test_sending", "weasyprint"])
    seed = random.randrange(1_000_000)
    dice, killed, again = random.Random(seed), 0, 0
    whole = 0.8  # seconds that one takes whom nobody kills: measured by each that ends by itself
    for number in range(times):
        box.mails.clear()
        run = ReportRun(
            name="killed",
            due_at=SystemClock().now() + timedelta(microseconds=number),
            title="GPU report",
            span=f"run {number}",
            summary="**A**\nB",
            html="<p>hours</p>",
        )
        desk.hub.write_records([run.to_record(1, run.due_at)])
        child = context.Process(target=send_once, args=(config,))
        started = time.monotonic()
        child.start()
        child.join(dice.uniform(0.05, 1.2) * whole)
        if child.is_alive():
            killed += 1
        else:
            whole = min(whole, time.monotonic() - started)
        child.kill()
        child.join()
        while desk.hub.record(RecordKind.REPORT, run.id).due_at is not None:  # type: ignore[union-attr]
            desk.step(wait_seconds=1.0)
        by_reader: dict[str, list[Any]] = {reader: [] for reader in READERS}
        for envelope, mail in box.mails:
            # What a killed sender had handed over may be taken from the wire only in the next run.
            if mail["Subject"].strip().endswith(f"run {number}"):
                by_reader[envelope.rcpt_tos[0]].append(mail)
        for reader, mails in by_reader.items():
            said = f"seed {seed}, run {number}, {reader}"
            assert 1 <= len(mails) <= 2, said
            marked = [mail["X-Gpuvigil-Perhaps-Again"] == "yes" for mail in mails]
            assert marked.count(False) <= 1, said
            assert len({mail["Message-ID"] for mail in mails}) == 1, said
            if marked[-1]:
                assert "may be your second copy" in mails[-1].get_body(("plain",)).get_content()
            again += len(mails) - 1
        states = {one.state for one in letters_of(desk.hub, run).values()}
        assert states == {LetterState.SENT}, seed
    # Most are killed on their way, and a letter in two copies is rare.
    assert killed >= times // 4, seed
    assert again <= killed
