"""Which way a message goes, when, and what keeps it back; each with its named reason."""

import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.decisions.attempts import attempt_ended, attempt_started
from alerts.decisions.decide import decide, judge, ruled
from alerts.messages.channel import Delivered, Refused, Retry
from alerts.routing.case import Case, ChannelProfile
from alerts.routing.notice import Notice, NoticeState, Verdict
from alerts.routing.route import fitting, resolve_route
from alerts.routing.situation import NO_SITUATION, Situation
from alerts.routing.week_hours import begins, ends
from gpuvigil.config import (
    AlertsSettings,
    InhibitSettings,
    RouteSettings,
    TimesSettings,
    WebhookSettings,
    load,
)
from gpuvigil.errors import ConfigError
from gpuvigil.faults import FAULTS
from gpuvigil.lifecycle import Signal, State
from gpuvigil.matching.matchers import LABELS, Matcher, fit, labels_of, matcher
from gpuvigil.model import (
    CoveredBy,
    Impact,
    Incident,
    Record,
    Severity,
    Silence,
    Subject,
    Transition,
)

from .examples import NOON, a_transition, an_incident, opened, resolved, seconds, taken

ALL = (
    ChannelProfile(name="chat", minimum_severity=Severity.INFO),
    ChannelProfile(name="pager", minimum_severity=Severity.INFO),
)
NEW_YEAR = datetime(2026, 1, 1, tzinfo=timezone.utc)
NODE = Subject(cluster="lab", node="n1")
LEAF = Subject(cluster="lab", node="leaf-3")
OFFICE = TimesSettings(
    name="office", days=("mon-fri",), begin="08:00", end="18:00", zone="Europe/Berlin"
)
NIGHT = TimesSettings(name="night", begin="22:00", end="06:00")


def settings(*routes: RouteSettings, **more: Any) -> AlertsSettings:
    return AlertsSettings(routes=routes, **more)


def told(
    transition: Transition,
    settings: AlertsSettings,
    earlier: list[Notice] | None = None,
    now: datetime = NOON,
    situation: Situation = NO_SITUATION,
) -> dict[str, Notice]:
    """The newest notice per channel."""
    decided = decide(transition, ALL, earlier or [], now, settings, situation)
    return {str(one.channel): one for one in decided}


def verdicts(*args: Any, **more: Any) -> dict[str, Verdict]:
    return {name: one.verdict for name, one in told(*args, **more).items()}


def judged(notice: Notice, settings: AlertsSettings, now: datetime, *siblings: Notice) -> Verdict:
    """What becomes of a notice that was put off, once its time has come."""
    (route,) = [one for one in ALL if one.name == notice.channel]
    case = Case(notice=notice, profile=route, siblings=siblings, now=now, settings=settings)
    return judge(case).verdict


def sent(notice: Notice, repeat_seconds: float = 0.0) -> list[Notice]:
    return attempt_ended(
        attempt_started(notice, NOON, 15.0),
        Delivered(),
        NOON,
        0.5,
        AlertsSettings(),
        repeat_seconds,
    )


@pytest.mark.parametrize(
    ("text", "labels", "holds"),
    [
        ('owner="alice"', {"owner": ("bob", "alice")}, True),
        ('owner!="alice"', {"owner": ("bob", "alice")}, False),
        ('owner!="alice"', {}, True),
        ('owner=""', {}, True),
        ('rack=~"r1.*"', {"rack": ("r12",)}, True),
        ('rack=~"r1"', {"rack": ("r12",)}, False),
        ('rack!~"r1.*"', {"rack": ("r12", "r2")}, False),
        ("severity=critical", {"severity": ("critical",)}, True),
        (r'owner="a\"b"', {"owner": ('a"b',)}, True),
        (r'node=~"n\d+"', {"node": ("n12",)}, True),
    ],
)
def test_matchers_read_as_those_of_alertmanager(
    text: str, labels: dict[str, tuple[str, ...]], holds: bool
) -> None:
    assert matcher(text).fits(labels) is holds


@given(st.sampled_from(LABELS), st.sampled_from(["=", "!="]), st.text(max_size=20))
def test_a_matcher_is_read_as_it_was_written(label: str, operator: str, value: str) -> None:
    made = Matcher(label=label, operator=operator, value=value)
    assert matcher(str(made)) == made
    assert fit([str(made)], {label: (value,)}) is (operator == "=")


@given(
    st.sampled_from(["=~", "!~"]),
    st.lists(st.sampled_from(["\\\\", '\\"', r"\d+", "gpu", "\\\n", "[a-z]", "é"]), max_size=8).map(
        "".join
    ),
)
def test_a_pattern_is_read_as_it_was_written(operator: str, pattern: str) -> None:
    made = matcher(f'node{operator}"{pattern}"')
    assert made.value == pattern
    assert matcher(str(made)) == made
    assert matcher(str(matcher(str(made)))) == made


def test_a_silence_by_pattern_is_kept_as_that_pattern() -> None:
    others = Situation(silences=(a_silence(str(matcher(r'node!~"sim-\d+"'))),))
    assert verdicts(opened(), settings(), situation=others)["chat"] is Verdict.FIRST
    assert str(Matcher(label="node", operator="=~", value='a"b')) == r'node=~"a\"b"'


def test_no_pattern_holds_up_who_matches() -> None:
    labels = {"node": ("n" * 200,)}
    doubling = r'node=~"(\w+\w*)+!"'
    assert not fit([doubling], labels)
    assert Situation(silences=(a_silence(doubling),)).silence(labels, NOON) is None


@pytest.mark.parametrize("pattern", [r"(n)\1", "(?=n).*", "\ud800", "(n{900}){900}"])
def test_a_kept_silence_with_an_unusable_pattern_silences_nothing(pattern: str) -> None:
    text = f'node=~"{pattern}"'
    with pytest.raises(ValueError, match="regular expression"):
        matcher(text)
    labels = {"node": ("n", "\udcff")}
    assert Situation(silences=(a_silence(text),)).silence(labels, NOON) is None
    assert fit(['node=~".*"'], labels)


@pytest.mark.parametrize(
    "text", ["", "owner", "colour=red", 'rack=~"("', 'a="b" c="d"', "owner==a"]
)
def test_what_is_no_matcher_is_said(text: str) -> None:
    with pytest.raises(ValueError, match=r"matcher|label|regular expression"):
        matcher(text)


def test_an_incident_has_the_labels_of_all_that_it_covers() -> None:
    incident = an_incident(
        subject=NODE,
        members=("lab/n1/gpu/GPU-1", "lab/n2/gpu/GPU-2"),
        impact=Impact(gpus=2, users=("alice", "bob")),
    )
    labels = labels_of(incident, {"lab/n2": "r7"})
    assert labels["node"] == ("n1", "n2")
    assert labels["rack"] == ("r7",)
    assert labels["owner"] == ("alice", "bob")
    assert set(labels) == set(LABELS)


def test_without_routes_every_channel_hears_of_everything() -> None:
    assert verdicts(opened(), settings()) == {"chat": Verdict.FIRST, "pager": Verdict.FIRST}


def test_the_first_route_that_fits_is_the_last_unless_it_goes_on() -> None:
    critical = RouteSettings(match=('severity="critical"',), receivers=("pager",))
    rest = RouteSettings(receivers=("chat",))
    assert verdicts(opened(), settings(critical, rest)) == {
        "chat": Verdict.NOT_ROUTED,
        "pager": Verdict.FIRST,
    }
    both = settings(replace(critical, go_on=True), rest)
    assert set(verdicts(opened(), both).values()) == {Verdict.FIRST}
    assert fitting(both.routes, labels_of(an_incident())) == [1, 2]
    warning = opened(severity=Severity.WARNING)
    assert verdicts(warning, settings(critical, rest))["pager"] is Verdict.NOT_ROUTED


def a_silence(*matchers: str, hours: float = 4.0) -> Silence:
    end = NOON + timedelta(hours=hours)
    return Silence(
        id="s-1",
        matchers=matchers,
        by="ada",
        reason="new cable",
        at=NOON,
        starts_at=NOON,
        ends_at=end,
    )


def test_what_is_silenced_is_told_when_the_silence_ends_and_says_who_and_why() -> None:
    situation = Situation(silences=(a_silence('node="sim-003"', hours=0.005),))
    notice = told(opened(), settings(), situation=situation)["chat"]
    assert (notice.verdict, notice.state) == (Verdict.SILENCED, NoticeState.DUE)
    assert notice.reason.startswith("silenced by ada until 12:00:18 UTC on 20 Nov: new cable")
    assert notice.due_at == NOON + seconds(18)
    after = told(opened(), settings(), now=NOON + seconds(18), situation=situation)["chat"]
    assert after.verdict is Verdict.FIRST


def test_a_long_silence_is_looked_at_again_since_it_may_be_ended_early() -> None:
    notice = told(opened(), settings(), situation=Situation(silences=(a_silence("node=sim-003"),)))
    assert notice["chat"].due_at == NOON + seconds(60)


def test_a_silence_of_others_or_of_nothing_silences_nothing() -> None:
    others = (a_silence('node="n9"'), a_silence(), a_silence("no matcher at all"))
    assert verdicts(opened(), settings(), situation=Situation(silences=others)) == {
        "chat": Verdict.FIRST,
        "pager": Verdict.FIRST,
    }


WIDE = an_incident(
    subject=LEAF,
    fault="switch_down",
    members=("lab/leaf-3", "lab/n1", "lab/n2"),
    impact=Impact(gpus=2, users=("alice", "bob")),
)


@pytest.mark.parametrize(
    ("matchers", "holds"),
    [
        (('node="n1"',), False),
        (('node=~"n1|n2"',), False),
        (('node=~"leaf-3|n1|n2"',), True),
        (('node=~"n1|n2|leaf-3"', 'owner="alice"'), False),
        (('node!="n1"',), False),
        (('node!="n9"',), True),
        (('owner="alice"',), False),
        (('owner=~"alice|bob"',), True),
        (('rack="r1"',), False),
        (('rack=~"r.*"',), True),
        (('fault="switch_down"', 'cluster="lab"'), True),
        (('gpu=""',), True),
    ],
)
def test_a_silence_is_of_an_incident_only_if_it_speaks_of_all_of_it(
    matchers: tuple[str, ...], holds: bool
) -> None:
    labels = labels_of(WIDE, {"lab/n1": "r1", "lab/n2": "r2"})
    found = Situation(silences=(a_silence(*matchers),)).silence(labels, NOON)
    assert (found is not None) is holds
    assert fit(['node="n1"', 'owner="alice"', 'rack="r1"'], labels)  # as routes ask


def test_who_was_told_hears_of_the_end_also_in_a_silence_and_at_night() -> None:
    begun_ = sent(told(opened(), settings())["chat"])
    quiet = settings(
        RouteSettings(receivers=("chat", "pager"), quiet_times=("day",)),
        times=(TimesSettings(name="day"),),
    )
    situation = Situation(silences=(a_silence("node=sim-003"),))
    assert verdicts(resolved(), quiet, begun_, situation=situation)["chat"] is Verdict.OVER


def test_a_silence_survives_that_it_comes_and_goes() -> None:
    situation = Situation(silences=(a_silence("node=sim-003"),))
    first = list(told(opened(), settings(), situation=situation).values())
    over = list(told(resolved(), settings(), first, situation=situation).values())
    assert {one.verdict for one in over} == {Verdict.NEVER_TOLD}
    back = a_transition(3, Signal.RETURNED, State.OPEN, State.RESOLVED)
    assert verdicts(back, settings(), [*first, *over], situation=situation) == {
        "chat": Verdict.SILENCED,
        "pager": Verdict.SILENCED,
    }


def test_a_silent_node_waits_for_its_cause_and_is_never_told_once_that_covers_it() -> None:
    silent = opened(fault="node_silent", subject=NODE)
    waiting = told(silent, settings())
    assert waiting["chat"].verdict is Verdict.WAITS_FOR_CAUSE
    assert waiting["chat"].due_at == NOON + seconds(20)
    covered = replace(
        resolved(fault="node_silent", subject=NODE),
        cause=CoveredBy(fingerprint="f1", what="leaf-3: Switch failed"),
    )
    later = NOON + seconds(7)
    decided = decide(covered, ALL, list(waiting.values()), later, settings(), NO_SITUATION)
    assert {one.verdict for one in decided} == {Verdict.SUPERSEDED, Verdict.NEVER_TOLD}
    assert all(one.state is not NoticeState.DUE for one in decided)
    alone = told(silent, settings(), now=NOON + seconds(21), earlier=[])
    assert alone["chat"].verdict is Verdict.WAITS_FOR_CAUSE  # of its own, from when it was made
    assert judged(waiting["chat"], settings(), NOON + seconds(20)) is Verdict.FIRST


def test_a_lost_gpu_waits_for_nothing() -> None:
    assert verdicts(opened(), settings())["chat"] is Verdict.FIRST


def test_it_escalates_when_nobody_takes_it_and_not_when_somebody_does() -> None:
    way = settings(RouteSettings(receivers=("chat",), escalate_to=("pager",), escalate_seconds=900))
    first = told(opened(), way)
    assert (first["chat"].verdict, first["pager"].verdict) == (Verdict.FIRST, Verdict.ESCALATES)
    assert first["pager"].due_at == NOON + seconds(900)
    earlier = list(first.values())
    assert judged(first["pager"], way, NOON + seconds(900)) is Verdict.ESCALATED
    mine = told(taken(), way, earlier)["pager"]
    assert mine.verdict is Verdict.TAKEN
    assert judged(first["pager"], way, NOON + seconds(900), mine) is Verdict.TAKEN


@pytest.mark.parametrize(
    ("state", "by"), [(State.ACKNOWLEDGED, None), (State.FLAPPING, "ada"), (State.OPEN, "ada")]
)
def test_what_somebody_has_taken_does_not_escalate_whatever_becomes_of_it(
    state: State, by: str | None
) -> None:
    way = settings(ESCALATING)
    earlier = list(told(opened(), way).values())
    grown = a_transition(3, Signal.CHANGED, state, state, acknowledged_by=by)
    assert verdicts(grown, way, earlier, NOON + seconds(60))["pager"] is Verdict.TAKEN


ESCALATING = RouteSettings(receivers=("chat",), escalate_to=("pager",), escalate_seconds=900)


def escalated(notice: Notice, first: Notice, now: datetime) -> Notice:
    """The pager's notice when its time has come, beside the chat's."""
    way = settings(ESCALATING)
    case = Case(notice=notice, profile=ALL[1], siblings=(), now=now, settings=way, others=(first,))
    return ruled(notice, judge(case), now)


def test_it_escalates_so_long_after_the_first_receiver_was_told_and_not_before() -> None:
    silent = Situation(silences=(a_silence("node=sim-003"),))
    kept = told(opened(), settings(ESCALATING), situation=silent)
    assert {one.verdict for one in kept.values()} == {Verdict.SILENCED}
    over = NOON + timedelta(hours=4)
    waiting = replace(kept["chat"], due_at=over)
    boss = escalated(replace(kept["pager"], due_at=over), waiting, over)
    assert (boss.verdict, boss.due_at) == (Verdict.ESCALATES, over + seconds(900))
    at = over + seconds(3)
    first = replace(waiting, state=NoticeState.SENT, verdict=Verdict.FIRST, sent_at=at, due_at=None)
    later = escalated(boss, first, over + seconds(900))
    assert (later.verdict, later.due_at) == (Verdict.ESCALATES, at + seconds(900))
    assert escalated(later, first, at + seconds(900)).verdict is Verdict.ESCALATED


def test_it_escalates_also_when_the_first_receiver_cannot_be_reached() -> None:
    both = told(opened(), settings(ESCALATING))
    going = attempt_started(both["chat"], NOON, 15.0)
    (failing,) = attempt_ended(going, Retry(reason="away"), NOON, 0.5, AlertsSettings())
    (refused,) = attempt_ended(going, Refused(reason="no"), NOON, 0.5, AlertsSettings())
    below = replace(both["chat"], state=NoticeState.NOT_SENT, verdict=Verdict.BELOW_MINIMUM)
    for first in (both["chat"], going, failing, refused, below):
        assert escalated(both["pager"], first, NOON + seconds(899)).verdict is Verdict.ESCALATES
        assert escalated(both["pager"], first, NOON + seconds(900)).verdict is Verdict.ESCALATED


def test_what_was_told_before_it_was_last_over_does_not_count_for_the_boss() -> None:
    way, later = settings(ESCALATING), NOON + timedelta(hours=1)
    earlier = [*sent(told(opened(), way)["chat"])[:1]]
    earlier += told(resolved(), way, earlier, NOON + seconds(60)).values()
    back = a_transition(3, Signal.RETURNED, State.OPEN, State.RESOLVED)
    boss = told(back, way, earlier, later)["pager"]
    assert (boss.verdict, boss.due_at) == (Verdict.ESCALATES, later + seconds(900))


def test_what_comes_at_night_is_told_in_the_morning() -> None:
    way = settings(RouteSettings(receivers=("chat", "pager"), times=("office",)), times=(OFFICE,))
    friday_night = datetime(2026, 11, 20, 20, 0, tzinfo=timezone.utc)
    notice = told(opened(), way, now=friday_night)["chat"]
    assert notice.verdict is Verdict.OUT_OF_HOURS
    assert notice.due_at == datetime(2026, 11, 23, 7, 0, tzinfo=timezone.utc)  # Monday 08:00 there
    assert verdicts(opened(), way)["chat"] is Verdict.FIRST


def test_quiet_hours_go_over_midnight() -> None:
    way = settings(RouteSettings(receivers=("chat",), quiet_times=("night",)), times=(NIGHT,))
    at = datetime(2026, 11, 21, 3, 0, tzinfo=timezone.utc)
    assert told(opened(), way, now=at)["chat"].due_at == at.replace(hour=6)


@given(
    st.integers(0, 366 * 24 * 60).map(lambda minutes: NEW_YEAR + timedelta(minutes=minutes)),
    st.sampled_from([OFFICE, NIGHT, replace(OFFICE, days=("sun",), zone="Pacific/Auckland")]),
)
def test_hours_that_are_not_open_begin_within_a_week_and_are_open_then(
    now: datetime, hours: TimesSettings
) -> None:
    opens = begins([hours], now)
    if ends([hours], now) is not None:
        assert opens is None
        return
    assert opens is not None
    assert now < opens <= now + timedelta(days=7, hours=1)  # a clock may be put back meanwhile
    assert ends([hours], opens) is not None
    assert begins([hours], opens) is None


def test_what_something_larger_explains_is_not_told_while_that_stands() -> None:
    rule = InhibitSettings(by=('fault="switch_down"',), of=('fault="port_down"',), same=("rack",))
    switch = an_incident(id="i-9", fault="switch_down", subject=LEAF, title="Switch leaf-3 failed")
    port = opened(fault="port_down", subject=NODE)
    racks = {"lab/leaf-3": "r1", "lab/n1": "r1"}
    way = settings(inhibit=(rule,))
    near = Situation(active=(switch,), racks=racks)
    notice = told(port, way, situation=near)["chat"]
    assert notice.verdict is Verdict.INHIBITED
    assert "Switch leaf-3 failed" in notice.reason
    assert notice.due_at == NOON + seconds(60)
    far = Situation(active=(switch,), racks={**racks, "lab/n1": "r2"})
    assert verdicts(port, way, situation=far)["chat"] is Verdict.FIRST
    gone = Situation(racks=racks)
    assert verdicts(port, way, situation=gone)["chat"] is Verdict.FIRST


FABRIC = InhibitSettings(by=('fault="switch_down"',), of=('fault="port_down"',))
BACK = InhibitSettings(by=('fault="port_down"',), of=('fault="switch_down"',))
AROUND = (
    InhibitSettings(by=('fault="a"',), of=('fault="b"',)),
    InhibitSettings(by=('fault="b"',), of=('fault="c"',)),
    InhibitSettings(by=('fault="c"',), of=('fault="a"',)),
)


def kept_back(rules: tuple[InhibitSettings, ...], *active: Incident) -> dict[str, str]:
    """What is not told, by what keeps it back."""
    situation = Situation(active=active)
    found = {one.id: situation.inhibitor(rules, one, labels_of(one)) for one in active}
    return {id_: other.id for id_, other in found.items() if other is not None}


def aged(id_: str, fault: str, age: float = 0.0, subject: Subject = NODE) -> Incident:
    return an_incident(id=id_, fault=fault, subject=subject, since=NOON - seconds(age))


@pytest.mark.parametrize("ages", [(2, 1, 0), (0, 1, 2), (1, 0, 2), (0, 0, 0)])
def test_of_a_ring_the_oldest_is_told(ages: tuple[float, float, float]) -> None:
    switch, port = aged("i-1", "switch_down", ages[0]), aged("i-2", "port_down", ages[1])
    for active in ((switch, port), (port, switch)):
        oldest = min(active, key=lambda one: (one.since, one.id))
        assert oldest.id not in kept_back((FABRIC, BACK), *active)
        assert len(kept_back((FABRIC, BACK), *active)) == 1
    ring = [aged(f"i-{name}", name, age) for name, age in zip("abc", ages, strict=True)]
    oldest = min(ring, key=lambda one: (one.since, one.id))
    kept = kept_back(AROUND, *ring)
    assert kept
    assert oldest.id not in kept


def test_a_younger_cause_that_is_in_no_ring_explains_what_is_older() -> None:
    assert kept_back((FABRIC,), aged("i-1", "switch_down"), aged("i-2", "port_down", 60)) == {
        "i-2": "i-1"
    }


def test_what_is_on_both_sides_of_a_rule_does_not_explain_its_like() -> None:
    rule = InhibitSettings(by=('severity="critical"',), of=('node="n1"',), same=("cluster",))
    assert kept_back((rule,), aged("i-1", "a"), aged("i-2", "b", 60)) == {}
    warning = replace(aged("i-3", "c"), severity=Severity.WARNING)
    assert kept_back((rule,), aged("i-1", "a"), warning) == {"i-3": "i-1"}


def test_what_is_simulated_explains_nothing_real() -> None:
    fake = aged("i-1", "switch_down", subject=Subject(cluster="simulated", node="leaf"))
    assert kept_back((FABRIC,), fake, aged("i-2", "port_down")) == {}
    made_up = aged("i-3", "port_down", subject=Subject(cluster="simulated", node="n1"))
    assert kept_back((FABRIC,), fake, made_up) == {"i-3": "i-1"}


def test_what_the_selftest_makes_explains_nothing_else() -> None:
    marked = aged("i-1", "switch_down", subject=Subject(cluster="selftest", node="leaf"))
    assert kept_back((FABRIC,), marked, aged("i-2", "port_down")) == {}
    simulated = aged("i-3", "port_down", subject=Subject(cluster="simulated", node="n1"))
    assert kept_back((FABRIC,), marked, simulated) == {}


def test_what_a_route_digests_need_not_reach_the_channels_minimum() -> None:
    way = settings(RouteSettings(match=('severity="info"',), receivers=("chat",), digest=True))
    chat = ChannelProfile(name="chat", minimum_severity=Severity.WARNING)
    (notice,) = decide(opened(severity=Severity.INFO), [chat], [], NOON, way)
    assert notice.verdict is Verdict.DIGEST


def test_information_goes_to_the_digest_where_a_route_says_so() -> None:
    way = settings(RouteSettings(match=('severity="info"',), receivers=("chat",), digest=True))
    notice = told(opened(severity=Severity.INFO), way)["chat"]
    assert (notice.verdict, notice.state) == (Verdict.DIGEST, NoticeState.NOT_SENT)


def test_a_route_may_repeat_what_is_not_critical() -> None:
    warning = told(opened(severity=Severity.WARNING), settings())["chat"]
    assert len(sent(warning)) == 1
    assert sent(warning, 60.0)[1].due_at == NOON + seconds(60)


def test_a_route_has_intervals_of_its_own() -> None:
    way = settings(RouteSettings(receivers=("chat",), update_seconds=7, repeat_seconds=9))
    found = resolve_route(way, labels_of(an_incident()), "chat")
    assert found is not None
    assert (found.number, found.update_seconds, found.repeat_seconds) == (1, 7, 9)
    assert resolve_route(way, labels_of(an_incident()), "pager") is None


def test_a_silence_is_read_as_it_was_written_and_ends_when_it_is_ended() -> None:
    silence = a_silence('owner="a\\"b"')
    record = Record.from_json(silence.to_record().to_json())
    assert Silence.from_record(record) == silence
    over = silence.ended(NOON + seconds(60))
    assert not over.holds(NOON + seconds(60))
    assert over.version == 2


CHAT = "[[alerts.webhooks]]\nname = 'chat'\nurl = 'http://127.0.0.1/x'\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[alerts.routes]]\nreceivers = ['nobody']", ["line 5", "receivers", "'nobody'", "chat"]),
        ("[[alerts.routes]]\nmatch = ['x']\nreceivers = ['chat']", ["line 5", "match", "owner="]),
        ("[[alerts.routes]]\ntimes = ['t']\nreceivers = ['chat']", ["line 5", "times", "'t'"]),
        ("[[alerts.routes]]\n", ["line 4", "receivers"]),
        ("[[alerts.times]]\nname = 'n'\ndays = ['moon']", ["line 6", "days", "'moon'"]),
        ("[[alerts.times]]\nname = 'n'\nend = '25:00'", ["line 6", "end", "08:00"]),
        ("[[alerts.times]]\nname = 'n'\nzone = 'Berlin'", ["line 6", "zone", "'Berlin'"]),
        ("[[alerts.inhibit]]\nby = ['fault=a']", ["line 4", "by and of"]),
        ("[[alerts.idle]]\nnotice_minutes = [60, 30]", ["line 5", "notice_minutes", "more than"]),
        ("[[alerts.idle]]\nmatch = ['namespace=a']", ["line 5", "match", "'namespace'"]),
        ("[[alerts.idle]]\ndays = ['moon']", ["line 5", "days", "'moon'"]),
        (
            "[[alerts.email]]\nserver='m'\nsender='a@b.c'\nowner_address='b.c'",
            ["line 7", "owner_address", "{user}@example.org"],
        ),
        (
            "[[alerts.routes]]\nreceivers=['chat']\n[[alerts.routes]]\nreceivers=['chat', 'b']",
            ["line 7", "receivers", "'b'"],
        ),
    ],
)
def test_a_mistake_in_a_route_names_its_line_and_key(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    file = tmp_path / "gpuvigil.toml"
    file.write_text(CHAT + text, encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load(file, {})
    assert all(word in str(refused.value) for word in words), str(refused.value)


def test_every_channel_can_be_named_in_a_route() -> None:
    entries = AlertsSettings(webhooks=(WebhookSettings(name="a", url="http://127.0.0.1/"),))
    assert entries.names() == ["a"]


def test_the_example_of_the_documentation_is_a_configuration_and_names_faults_that_there_are(
    tmp_path: Path,
) -> None:
    page = (Path(__file__).parents[2] / "docs/alerts.md").read_text(encoding="utf-8")
    (example,) = [
        text
        for text in re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        if "[[alerts.routes]]" in text
    ]
    file = tmp_path / "gpuvigil.toml"
    channels = [
        CHAT,
        *(CHAT.replace("'chat'", f"'{name}'") for name in ("pager", "boss")),
    ]
    file.write_text("".join(channels) + example, encoding="utf-8")
    routes = load(file, {}).alerts
    assert len(routes.routes) == 3
    assert set(re.findall(r'fault="(\w+)"', example)) <= set(FAULTS)
    held = Impact(gpus=1, users=("alice",))
    idle = an_incident(fault="gpu_idle_held", severity=Severity.WARNING, impact=held)
    assert resolve_route(routes, labels_of(idle), "owners") is not None
    assert resolve_route(routes, labels_of(idle), "chat") is None
