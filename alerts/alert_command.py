"""`gpuvigil alert`: run alerting; with a verb, show routes, test a channel or retry what failed."""

import argparse
import getpass
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta

from accounting.people.typist import audit_of_command
from gpuvigil.clock import EPOCH, SystemClock, moment
from gpuvigil.config import AlertsSettings, Config
from gpuvigil.config.startup import configured_anywhere, parser, run_command, run_service
from gpuvigil.config.tuning import tried_on_the_past
from gpuvigil.errors import ConfigError, HubRefused
from gpuvigil.faults.trial import Feedback, feedback, on_trial, why
from gpuvigil.hub_client import Hub, service_hubs
from gpuvigil.lifecycle import Signal, State
from gpuvigil.matching.matchers import labels_of
from gpuvigil.model import (
    AuditedAction,
    Evidence,
    Impact,
    Incident,
    Opinion,
    RecordKind,
    Severity,
    Subject,
    Transition,
    fingerprint,
    readable,
)

from .channels import configured
from .decisions.attempts import requeued
from .delivery.batches import all_of, in_parts
from .delivery.dispatcher import notices_of
from .messages.channel import Channel, Delivered, Outcome, tried
from .messages.message import Message, message
from .routing.notice import Kind, Notice, NoticeState, draft
from .routing.route import fitting, misfit, resolve_route
from .routing.situation import SituationReader
from .service import run

_WORTH = ("useful", "noise")
_NOBODY = "No channel is configured, so no alerts are sent; see docs/alerts.md."
TESTED = Subject(cluster="gpuvigil", node="test")


def main(arguments: Sequence[str]) -> int:
    """Run the service, or what a verb asks for; returns the exit code."""
    options = parser("alert", "Without a verb: run alerting until SIGTERM or SIGINT.")
    verbs = options.add_subparsers(dest="verb", metavar="VERB")
    route = verbs.add_parser("route", help="show the routes, or explain one incident's")
    route.add_argument("--explain", metavar="INCIDENT", help="the incident's ID")
    verbs.add_parser("opinions", help="count votes by rule: useful or noise")
    vote = verbs.add_parser("vote", help="vote an incident useful, or noise")
    vote.add_argument("incident", help="its id")
    vote.add_argument("worth", choices=_WORTH, metavar="|".join(_WORTH))
    vote.add_argument("--by", default="", help="your name; default: the current user")
    retry = verbs.add_parser("retry", help="retry notifications that were given up")
    retry.add_argument("--channel", help="only those of this channel")
    test = verbs.add_parser("test", help="send a test alert and its resolution")
    test.add_argument("channel", help="the channel's name")
    test.add_argument(
        "--owner", help="act as if this user were affected, for channels that write to owners"
    )
    configured_anywhere(verbs.choices.values())
    chosen = options.parse_args(arguments)
    if chosen.verb is None:
        return run_service(options, arguments, run)
    return run_command(options, arguments, _VERBS[chosen.verb])


def explained(
    incident: Incident, notices: Sequence[Notice], settings: AlertsSettings, hub: Hub, now: datetime
) -> Iterator[str]:
    """Explain an incident's routing line by line: labels, routes, what each channel was sent."""
    situation = SituationReader(hub, settings).read(0.0)
    labels = labels_of(incident, situation.racks)
    yield f"{incident.id}: {incident.title} ({incident.state})"
    yield "labels: " + " ".join(f'{key}="{value}"' for key in labels for value in labels[key])
    taken = set(fitting(settings.routes, labels))
    for number, route in enumerate(settings.routes, 1):
        wrong = misfit(route, labels)
        why = "" if number in taken else f": no, {wrong}" if wrong else ": not reached"
        yield f"route {number} to {', '.join(route.receivers)}{why or ': yes'}"
    if not settings.routes:
        yield "routes: none, so every channel hears of everything"
    silence = situation.silence(labels, now)
    if silence is not None:
        yield f"silenced by {silence.by} until {moment(silence.ends_at)}: {silence.reason}"
    larger = situation.inhibitor(settings.inhibit, incident, labels)
    if larger is not None:
        yield f"inhibited while this is open: {larger.title} ({larger.id})"
    for channel in settings.names() or ["-"]:
        way = resolve_route(settings, labels, channel)
        by = (
            "no route leads here"
            if way is None
            else f"by route {way.number}"
            if way.number
            else "all"
        )
        mine = [one for one in notices if (one.channel or "-") == channel]
        yield f"channel {channel} ({by}): {_added_up(mine)}"
        for notice in sorted(mine, key=lambda one: one.order):
            yield f"  {_delivery_line(notice)}"


_BECAME = {NoticeState.SENT: "sent", NoticeState.DUE: "pending"}


def _added_up(notices: Sequence[Notice]) -> str:
    """Return a summary like `4 decisions: 1 sent (first), 3 not sent (2 unremarkable, late)`."""
    reasons: dict[str, Counter[str]] = {}
    for one in notices:
        became = reasons.setdefault(_BECAME.get(one.state, "not sent"), Counter())
        became[one.verdict.name.lower()] += 1
    parts = [
        f"{found.total()} {became} ("
        + ", ".join(name if count == 1 else f"{count} {name}" for name, count in found.items())
        + ")"
        for became, found in reasons.items()
    ]
    many = f"{len(notices)} decision{'' if len(notices) == 1 else 's'}"
    if not parts:
        return (
            "no decision yet; firing incidents are decided when alerting starts with this channel"
        )
    return f"{many}: {', '.join(parts)}"


def _delivery_line(notice: Notice) -> str:
    step = f"{notice.from_state} to {notice.to_state}" if not notice.repeat else "reminder"
    when = f" at {moment(notice.due_at)}" if notice.due_at else ""
    reason = notice.reason or notice.verdict.value
    return f"{step}: {notice.state.value}{when}: {notice.verdict.name.lower()}: {reason}"


def channel_test_message(
    channel: str, now: datetime, over: bool, settings: AlertsSettings, owner: str | None = None
) -> Message:
    """Return the message of a test, or of its end; if `owner` is given, to that owner, too."""
    incident = Incident(
        id=f"test-{int(now.timestamp())}",
        fingerprint=fingerprint("test", TESTED),
        fault="test",
        subject=TESTED,
        severity=Severity.INFO,
        state=(State.RESOLVED if over else State.OPEN).value,
        title=f"Test of the channel {channel}",
        since=now,
        updated_at=now,
        resolved_at=now if over else None,
        impact=Impact(text="none, nothing is wrong", users=(owner,) if owner else ()),
        evidence=(Evidence(name="gpuvigil alert test", value=channel),),
        action="Nothing: this is how a message looks.",
        label="gpuvigil",
    )
    step = Transition(
        incident=incident.id,
        number=2 if over else 1,
        from_state=State.SUSPECT.value,
        to_state=incident.state,
        signal=(Signal.CLEARED if over else Signal.CONFIRMED).value,
        at=now,
        reason="a test",
        subject=TESTED,
        snapshot=incident.to_record().to_json(),
    )
    notice = replace(draft(step, channel, now), kind=Kind.RESOLVED if over else Kind.FIRED)
    return message(notice, now, settings.external_url, runbook_url=settings.runbook_url)


def _test(config: Config, chosen: argparse.Namespace) -> int:
    channels = {one.profile.name: one for one in configured(config.alerts)}
    channel = channels.get(chosen.channel)
    if channel is None:
        there = ", ".join(channels) or "none"
        raise ConfigError(f"there is no channel {chosen.channel!r}; there are {there}")
    with closing(channel):
        now = SystemClock().now()
        receipt = None
        for over in (False, True):
            said = channel_test_message(
                channel.profile.name, now, over, config.alerts, chosen.owner
            )
            outcome, seconds = _timed(channel, replace(said, receipt=receipt))
            what = "the end of the test" if over else "the test"
            if not isinstance(outcome, Delivered):
                print(f"{what} was not delivered: {outcome.reason}")
                return 1
            receipt = outcome.receipt
            print(f"{what} was delivered in {seconds:.2f} s")
            time.sleep(1.0 / channel.pace.per_second)
    return 0


def _timed(channel: Channel, message: Message) -> tuple[Outcome, float]:
    began = time.monotonic()
    return tried(lambda: channel.deliver(message)), time.monotonic() - began


def _route(config: Config, chosen: argparse.Namespace) -> int:
    settings = config.alerts
    if not chosen.explain:
        for number, route in enumerate(settings.routes, 1):
            late = f", then {', '.join(route.escalate_to)}" if route.escalate_to else ""
            fits = " ".join(route.match) or "everything"
            print(f"route {number}: {fits} to {', '.join(route.receivers)}{late}")
        if not settings.routes:
            print(
                f"no routes: everything to {', '.join(settings.names())}"
                if settings.names()
                else _NOBODY
            )
        return 0
    hub = service_hubs(config.hub)()
    incident = _incident(hub, chosen.explain)
    notices = list(notices_of(hub, incident.id).values())
    for line in explained(incident, notices, settings, hub, SystemClock().now()):
        print(line)
    return 0


def _incident(hub: Hub, id_: str) -> Incident:
    record = hub.record(RecordKind.INCIDENT, id_)
    incident = next(readable([record] if record else [], Incident.from_record), None)
    if incident is None:
        raise ConfigError(f"the hub knows no incident {id_!r}")
    return incident


def _vote(config: Config, chosen: argparse.Namespace) -> int:
    hub, now = service_hubs(config.hub)(), SystemClock().now()
    incident, by = _incident(hub, chosen.incident), chosen.by or getpass.getuser()
    given = Opinion.given(incident, by, useful=chosen.worth == _WORTH[0], at=now)
    entry = audit_of_command(AuditedAction.OPINION, incident.id, chosen.worth, now)
    hub.write_records([given.to_record(), entry.to_record()])
    print(f"counted as {chosen.worth} for the rule {incident.fault}")
    return 0


def opinions(found: Iterable[Opinion]) -> list[tuple[str, int, int]]:
    """Return (rule, votes useful, votes noise) for each rule, the noisiest first."""
    useful, noise = Counter[str](), Counter[str]()
    for one in found:
        (useful if one.useful else noise)[one.fault] += 1
    rules = sorted({*useful, *noise}, key=lambda rule: (-noise[rule], useful[rule], rule))
    return [(rule, useful[rule], noise[rule]) for rule in rules]


def _retry(config: Config, chosen: argparse.Namespace) -> int:
    """Make notices that were given up due again; incidents that are over by then are not sent."""
    hub, now = service_hubs(config.hub)(), SystemClock().now()
    dead = all_of(hub, RecordKind.NOTICE, ("dead",), EPOCH, now + timedelta(days=1))
    found = readable(dead, Notice.from_record)
    wanted = [one for one in found if chosen.channel in {None, one.channel}]
    refused: list[HubRefused] = []
    in_parts(
        [requeued(one, now).to_record() for one in wanted],
        hub.write_records,
        lambda _, error: refused.append(error),
    )
    print(f"retried: {len(wanted) - len(refused)}")
    if refused:
        raise refused[0]
    return 0


def _opinions(config: Config, _: argparse.Namespace) -> int:
    found = tuple(
        readable(service_hubs(config.hub)().records(RecordKind.OPINION), Opinion.from_record)
    )
    proven, counted = config.alerts.proven, feedback(found)
    if not found:
        print("No votes yet.")
    for rule, useful, noise in opinions(found):
        command = tried_on_the_past(rule) if noise else ""
        said = counted.get(rule, Feedback())
        trial = f"; on trial: {why(said, proven)}" if on_trial(rule, said, proven) else ""
        tried = f"; try {command}" if command else ""
        print(f"{rule}: {noise} noise, {useful} useful{trial}{tried}")
    return 0


_VERBS = {"route": _route, "test": _test, "opinions": _opinions, "vote": _vote, "retry": _retry}
