"""Scheduled reports: each is made once when it is due, and sent once to each receiver.

What is about to be handed over is written to the hub before, and the outcome after (`Letter`). A process
that dies in between thus knows when it restarts who has the report, except for one receiver: the mail server
may have accepted the letter or not. That receiver gets it again, and the letter says so.
"""

import re
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from email.message import EmailMessage
from email.utils import format_datetime
from hashlib import sha256

from alerts.channels import configured
from alerts.channels.email import Email
from alerts.messages.channel import Channel, Delivered, Outcome, Refused, Retry, tried
from alerts.messages.message import Message
from gpuvigil.clock import Clock
from gpuvigil.config import Config, ReportSettings
from gpuvigil.errors import GpuvigilError
from gpuvigil.hub_client import Hub
from gpuvigil.log import Log
from gpuvigil.model import RecordKind, Severity, Subject, readable
from gpuvigil.model.report_run import Letter, LetterState, ReportRun
from gpuvigil.web.page_links import report_page

from ..formats.html_format import html
from ..formats.markdown_format import summary
from ..formats.pdf_format import pdf
from ..inputs.facts import read
from ..sections.build import build
from ..sections.revised import numbers_to_keep, revised
from .archive import earlier_numbers_since, letters_of, runs
from .editions import of_team, only_theirs
from .schedule import final_of, planned, so_far, until

LEASE_SECONDS, POLL_SECONDS = 300.0, 20.0
# A round sends only as long as this share of the lease allows, so that the lease never ends under it.
_ROUND_SHARE = 0.4
RETRY_AFTER, MOST_TRIES = timedelta(minutes=5), 288  # a day of them
AGAIN = (
    "This may be your second copy: gpuvigil was cut off while it handed over the first one, and cannot"
    " know whether your mail server took it."
)
_CHANNEL = "channel "
_OVER = frozenset({LetterState.SENT, LetterState.REFUSED})


@dataclass(slots=True, kw_only=True)
class ReportRunner:
    """Makes and sends due reports; several may run, and each report is worked on by one at a time."""

    hub: Hub
    config: Config
    clock: Clock
    log: Log
    lease_seconds: float = LEASE_SECONDS
    retry_after: timedelta = RETRY_AFTER
    owner: str = field(default_factory=lambda: f"{socket.gethostname()}-{secrets.token_hex(4)}")

    def step(self, wait_seconds: float = 0.0) -> int:
        """Run one round; return how many reports were worked on. HubError when the hub does not answer."""
        now = self.clock.now()
        for settings in self.config.reports:
            self._plan(settings, now)
        claimed = self.hub.claim(
            RecordKind.REPORT,
            self.owner,
            lease_seconds=self.lease_seconds,
            limit=1,
            wait_seconds=wait_seconds,
        )
        for record in claimed:
            ended = []
            for run in readable([record], ReportRun.from_record):
                made, again = self._work(run, record.version)
                ended.append(made.to_record(record.version + 2, again))
            self.hub.finish(RecordKind.REPORT, self.owner, [record.id], ended)
        return len(claimed)

    def due_now(self, settings: ReportSettings) -> ReportRun:
        """Make and send a report now, whatever its schedule says."""
        run = ReportRun(name=settings.name, due_at=self.clock.now())
        self.hub.write_records([run.to_record(1, run.due_at)])
        return run

    def _plan(self, settings: ReportSettings, now: datetime) -> None:
        """Make the last due run work, once, even if nobody was there then; for a new report only future runs."""
        for run in planned(settings, now):
            if self.hub.record(RecordKind.REPORT, run.id) is None:
                known = any(one.name == run.name and not one.early for one in runs(self.hub))
                self.hub.write_records([run.to_record(1, now if known else None)])

    def _work(self, run: ReportRun, version: int) -> tuple[ReportRun, datetime | None]:
        """Return the run's new state, and when to continue; None when it is done or no longer wanted."""
        settings = next((one for one in self.config.reports if one.name == run.name), None)
        late = run.final_at is not None and self.clock.now() >= run.final_at
        if settings is None or late:
            return run, None
        if not run.html:
            run = self.made(run, settings)
            self.hub.write_records([run.to_record(version + 1, run.due_at)])
        if run.early or self._sent(run, settings):
            return run, None
        tried_all = set(receivers(settings)) <= letters_of(self.hub, run).keys()
        now = self.clock.now()
        return run, now + self.retry_after if tried_all else now

    def made(self, run: ReportRun, settings: ReportSettings) -> ReportRun:
        """Return the report of the span that was over when it was due; for a preview, what is known so far."""
        chosen, now = settings.cluster or None, self.clock.now()
        span, calendar = so_far(settings, run, now)
        facts = read(self.hub, chosen, span, now, self.config, calendar)
        past = earlier_numbers_since(self.hub, span[1])
        if settings.team:
            theirs = [of_team(one, settings.team) for one in facts]
            made = [(one, only_theirs(build(one))) for one in theirs]
        else:
            made = [(one, build(one)) for one in facts]
        reports = tuple(replace(it, revised=revised(one, it, past)) for one, it in made)
        final = final_of(settings, run)
        if final is not None:
            said = until(settings, final)
            reports = tuple(
                replace(one, title=f"Preview: {one.title}", revised=said) for one in reports
            )
        return replace(
            run,
            title=", ".join(one.title for one in reports),
            span=reports[0].span,
            summary="\n\n".join("\n".join(summary(one)) for one in reports),
            html=html(reports, settings.paper),
            # The final report is not a revision of its preview.
            numbers=()
            if final or run.early
            else tuple(numbers_to_keep(one, it) for one, it in made),
        )

    def _sent(self, run: ReportRun, settings: ReportSettings) -> bool:
        """Return whether every receiver has the report, or never will."""
        letters = letters_of(self.hub, run)
        began = time.monotonic()
        channels = {one.profile.name: one for one in configured(self.config.alerts)}
        bag = _Bag(run=run, settings=settings, channels=channels)
        try:
            for to in receivers(settings):
                letter = letters.get(to)
                if letter is not None and letter.state in _OVER:
                    continue
                if time.monotonic() - began > _ROUND_SHARE * self.lease_seconds:
                    return False
                letters[to] = self._hand_over(bag, to, letter)
        finally:
            for channel in channels.values():
                channel.close()
        left = [letters[to] for to in receivers(settings) if letters[to].state not in _OVER]
        return all(one.tries >= MOST_TRIES for one in left)

    def _hand_over(self, bag: "_Bag", to: str, before: Letter | None) -> Letter:
        """Record that the letter is being sent, send it, and record the outcome."""
        run = bag.run
        tries = 1 if before is None else before.tries + 1
        perhaps = before is not None and before.state is LetterState.SENDING
        letter = Letter(
            run=run.id, to=to, state=LetterState.SENDING, at=self.clock.now(), tries=tries
        )
        self.hub.write_records([letter.to_record()])
        outcome = tried(lambda: self._deliver(bag, to, perhaps=perhaps))
        if isinstance(outcome, Retry) and outcome.perhaps_received:
            self.log.warning("report perhaps sent", report=run.id, to=to, reason=outcome.reason)
            return letter
        state = _BECAME[type(outcome)]
        reason = "" if isinstance(outcome, Delivered) else outcome.reason
        letter = replace(letter, state=state, at=self.clock.now(), reason=reason)
        self.hub.write_records([letter.to_record()])
        self.log.info("report handed over", report=run.id, to=to, state=state.value, reason=reason)
        return letter

    def _deliver(self, bag: "_Bag", to: str, *, perhaps: bool) -> Outcome:
        chat = to.startswith(_CHANNEL)
        name = to.removeprefix(_CHANNEL) if chat else bag.settings.channel
        channel = bag.channels.get(name)
        if channel is None:
            return Refused(reason=f"there is no channel {name!r}")
        link = f"{self.config.alerts.external_url.rstrip('/')}{report_page(bag.run.id)}"
        if chat:
            return channel.deliver(_message(bag.run, link, self.clock.now(), to))
        if not isinstance(channel, Email):
            return Refused(reason=f"{name!r} is no e-mail channel")
        mail = _mail(bag.run, (channel.sender, to), link, bag.pdf())
        return channel.post(_perhaps_again(mail) if perhaps else mail, to)


@dataclass(slots=True, kw_only=True)
class _Bag:
    """One report and its channels; its PDF is rendered once, for the first receiver."""

    run: ReportRun
    settings: ReportSettings
    channels: Mapping[str, Channel]
    _drawn: bytes | None = None

    def pdf(self) -> bytes:
        """Return the PDF; empty when it cannot be rendered here: the HTML says the same."""
        if self._drawn is None:
            try:
                self._drawn = pdf(self.run.html)
            except GpuvigilError:
                self._drawn = b""
        return self._drawn


_BECAME: Mapping[type, LetterState] = {
    Delivered: LetterState.SENT,
    Refused: LetterState.REFUSED,
    Retry: LetterState.WAITING,
}


def receivers(settings: ReportSettings) -> tuple[str, ...]:
    """Return the receivers: addresses, then channels."""
    return tuple(dict.fromkeys([*settings.to, *(f"{_CHANNEL}{name}" for name in settings.link_to)]))


def _mail(run: ReportRun, parties: tuple[str, str], link: str, drawn: bytes) -> EmailMessage:
    """Return the e-mail between the two parties; its id is the same however often it is sent."""
    sender, to = parties
    mark = sha256(f"{run.id}|{to}".encode()).hexdigest()[:32]
    name = f"gpu-report-{run.due_at:%Y-%m-%d}"
    made = EmailMessage()
    made["From"], made["To"] = sender, to
    made["Subject"] = " ".join(f"{run.title}, {run.span}".split())[:200]
    made["Date"] = format_datetime(run.due_at)
    made["Message-ID"] = f"<{mark}@{sender.rpartition('@')[2]}>"
    made["Auto-Submitted"] = "auto-generated"
    made.set_content(f"{_plain(run.summary)}\n\nIn the archive: {link}\n")
    made.add_attachment(run.html, subtype="html", filename=f"{name}.html")
    if drawn:
        made.add_attachment(drawn, maintype="application", subtype="pdf", filename=f"{name}.pdf")
    return made


def _perhaps_again(mail: EmailMessage) -> EmailMessage:
    """Mark the e-mail as possibly a second copy."""
    mail["X-Gpuvigil-Perhaps-Again"] = "yes"
    body = mail.get_body(("plain",))
    assert body is not None
    body.set_content(f"{AGAIN}\n\n{body.get_content()}")
    return mail


def _plain(summary_: str) -> str:
    """Return Markdown as plain text for a letter."""
    return re.sub(r"\\(.)", r"\1", summary_.replace("**", "").replace("\u00a0", " "))


def _message(run: ReportRun, link: str, now: datetime, to: str) -> Message:
    """Return the message for a chat: the first sentences, and where the report is."""
    lines = [line for line in _plain(run.summary).splitlines() if line]
    said = lines[1] if len(lines) > 1 else run.span
    return Message(
        notice=f"{run.id}|{to}",
        incident=run.id,
        fingerprint=sha256(run.id.encode()).hexdigest()[:16],
        fault="report",
        severity=Severity.INFO,
        subject=Subject(cluster="gpuvigil", node="report"),
        simulated=False,
        firing=False,
        covered=False,
        at=now,
        starts_at=run.due_at,
        ends_at=now,
        summary=" ".join(f"{run.title}, {run.span}".split()),
        where="all nodes",
        since=run.span,
        impact="none",
        evidence="",
        action=said,
        source="gpuvigil report",
        link=link,
        incident_link=link,
    )
