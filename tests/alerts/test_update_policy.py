"""Where a message cannot be brought up to date, only what would make somebody act otherwise is told."""

from dataclasses import replace
from typing import Any

import pytest

from alerts.channels.email import body
from alerts.decisions.attempts import attempt_ended, attempt_started
from alerts.decisions.decide import decide, judge
from alerts.messages.channel import Delivered, Outcome, Refused
from alerts.messages.message import message
from alerts.routing.case import Case, ChannelProfile
from alerts.routing.notice import Notice, NoticeState, Verdict
from alerts.routing.update_policy import notified_owners
from gpuvigil.lifecycle import Signal, State
from gpuvigil.model import Impact, OutOfService, Severity, Transition
from gpuvigil.web.signed_links import Seal

from .examples import NOON, REAL, SETTINGS, a_transition, changed, opened, resolved, seconds, taken

HOOK = ChannelProfile(name="chat", minimum_severity=Severity.WARNING, every_change=False)
MAIL = replace(HOOK, owners=True, owners_only=True)
SEAL = Seal(lambda: "k" * 40)
WARNING = Severity.WARNING
LATER = NOON + seconds(400)
NODES = tuple(f"lab/n{number}" for number in range(40))


def the_notice(
    transition: Transition,
    earlier: list[Notice],
    profile: ChannelProfile = HOOK,
    after: float = 400.0,
) -> Notice:
    return decide(transition, [profile], earlier, NOON + seconds(after), SETTINGS)[-1]


def sent(
    transition: Transition, profile: ChannelProfile = HOOK, earlier: tuple[Notice, ...] = ()
) -> Notice:
    fresh = the_notice(transition, list(earlier), profile, after=400.0 if earlier else 0.0)
    return attempt_ended(
        attempt_started(fresh, fresh.at, 15.0), Delivered(), fresh.at, 0.5, SETTINGS
    )[0]


def hits(*users: str, gpus: int = 1) -> Impact:
    return Impact(gpus=gpus, holders=tuple(f"job of {user}" for user in users), users=users)


@pytest.mark.parametrize(
    ("before", "now", "verdict"),
    [
        ({}, {"impact": hits("bob")}, "UNREMARKABLE"),
        ({}, {"covers": ("n1: its GPUs are silent",)}, "UNREMARKABLE"),
        ({}, {"title": "A cable is loose"}, "EXPLAINED"),
        ({}, {"severity": Severity.CRITICAL}, "WORSE"),
        ({"members": NODES[:8]}, {"members": NODES[:15]}, "UNREMARKABLE"),
        ({"members": NODES[:8]}, {"members": NODES[:16]}, "GREW"),
        ({"members": NODES[:2]}, {"members": NODES[:9]}, "UNREMARKABLE"),
        ({"members": NODES[:2]}, {"members": NODES[:10]}, "GREW"),
        ({"impact": hits("bob", gpus=8)}, {"impact": hits("bob", gpus=16)}, "GREW"),
    ],
)
def test_a_change_is_told_when_it_would_make_somebody_act_otherwise(
    before: dict[str, Any], now: dict[str, Any], verdict: str
) -> None:
    first = sent(opened(severity=WARNING, **before))
    notice = the_notice(changed(**{"severity": WARNING, **before, **now}), [first])
    assert notice.verdict.name == verdict
    assert (notice.state is NoticeState.NOT_SENT) == (verdict == "UNREMARKABLE")
    assert notice.to_record().body["reason"]


def test_a_switch_that_takes_one_node_after_another_makes_a_message_and_one_that_follows() -> None:
    known = {one.id: one for one in [sent(opened(1, members=NODES[:2]))]}
    for number in range(2, 15):
        grown = changed(number, members=NODES[: 3 * number])
        for one in decide(
            grown, [HOOK], list(known.values()), NOON + seconds(20 * number), SETTINGS
        ):
            known[one.id] = one
    due = [one for one in known.values() if one.state is NoticeState.DUE]
    assert [(one.verdict, one.due_at) for one in due] == [
        (Verdict.TOLD_RECENTLY, NOON + seconds(300))
    ]
    others = tuple(one for one in known.values() if one is not due[0])
    case = Case(notice=due[0], profile=HOOK, siblings=others, now=LATER, settings=SETTINGS)
    assert judge(case).verdict is Verdict.GREW


def test_what_has_two_names_in_turn_is_explained_twice_and_then_no_more() -> None:
    first = sent(opened(1, severity=WARNING, title="hot"))
    second = sent(changed(2, severity=WARNING, title="hot for its place"), earlier=(first,))
    back = the_notice(changed(3, severity=WARNING, title="hot"), [first, second])
    assert (second.verdict, back.verdict) == (Verdict.EXPLAINED, Verdict.UNREMARKABLE)


def test_a_cause_that_waits_to_be_told_and_is_another_by_then_is_never_told() -> None:
    first = sent(opened(1, severity=WARNING, title="hot"))
    waiting = the_notice(changed(2, severity=WARNING, title="cold"), [first], after=60.0)
    assert waiting.verdict is Verdict.TOLD_RECENTLY
    back = changed(3, severity=WARNING, title="hot")
    old, new = decide(back, [HOOK], [first, waiting], NOON + seconds(90), SETTINGS)
    assert (old.id, old.state) == (waiting.id, NoticeState.SUPERSEDED)
    assert (new.verdict, new.state) == (Verdict.UNREMARKABLE, NoticeState.NOT_SENT)


def unremarkable() -> tuple[Notice, Notice]:
    """A critical incident that was told, and who it hits now, in place of its reminder."""
    going = attempt_started(the_notice(opened(), [], after=0.0), NOON, 15.0)
    told, reminder = attempt_ended(going, Delivered(), NOON, 0.5, SETTINGS)
    old, new = decide(changed(impact=hits("bob")), [HOOK], [told, reminder], LATER, SETTINGS)
    assert (old.id, old.state) == (reminder.id, NoticeState.SUPERSEDED)
    assert (new.verdict, new.state) == (Verdict.UNREMARKABLE, NoticeState.DUE)
    return told, new


def test_what_made_no_message_is_what_the_reminder_says() -> None:
    told, new = unremarkable()
    assert new.due_at == NOON + seconds(14_400)
    case = Case(notice=new, profile=HOOK, siblings=(told,), now=new.due_at, settings=SETTINGS)
    ruling = judge(case)
    assert (ruling.verdict, ruling.send_now) == (Verdict.STILL_STANDING, True)
    going = attempt_started(replace(new, verdict=ruling.verdict), new.due_at, 15.0)
    *_, next_reminder = attempt_ended(going, Delivered(), new.due_at, 0.5, SETTINGS)
    assert next_reminder.due_at == NOON + seconds(28_800)


def test_who_takes_an_incident_ends_what_waited_for_its_reminder() -> None:
    told, new = unremarkable()
    ended, _ = decide(taken(3), [HOOK], [told, new], LATER, SETTINGS)
    assert (ended.id, ended.state, ended.verdict) == (new.id, NoticeState.NOT_SENT, Verdict.TAKEN)


def test_what_is_taken_and_changes_makes_no_message_and_its_end_does() -> None:
    told = sent(opened())
    took = the_notice(taken(2), [told])
    state = State.ACKNOWLEDGED
    moved = a_transition(3, Signal.CHANGED, state, state, impact=hits("bob"))
    held = the_notice(moved, [told, took])
    assert (held.verdict, held.state) == (Verdict.UNREMARKABLE, NoticeState.NOT_SENT)
    assert the_notice(resolved(4), [told, took, held]).verdict is Verdict.OVER


def test_what_was_taken_out_of_service_is_told_again_when_it_is_back() -> None:
    told = sent(opened())
    out = the_notice(changed(2, out_of_service=OutOfService("DRAIN", "drained by ada")), [told])
    back = the_notice(changed(3), [told, out])
    assert (out.verdict, back.verdict) == (Verdict.OUT_OF_SERVICE, Verdict.RESUMED)


def test_what_flaps_is_told() -> None:
    flaps = a_transition(2, Signal.FLAPPED, State.FLAPPING, State.OPEN, severity=WARNING)
    assert the_notice(flaps, [sent(opened(severity=WARNING))]).verdict is Verdict.CHANGED


def test_who_is_newly_hit_hears_of_it_alone_and_all_who_were_told_hear_of_the_end() -> None:
    first = sent(opened(1, impact=hits("alice"), subject=REAL, severity=WARNING), MAIL)
    more = sent(
        changed(2, impact=hits("alice", "bob"), subject=REAL, severity=WARNING), MAIL, (first,)
    )
    assert more.verdict is Verdict.NEWLY_HIT
    case = Case(notice=more, profile=MAIL, siblings=(first,), now=LATER, settings=SETTINGS)
    said = message(more, LATER, "http://x", notified_owners=notified_owners(case.sent))
    assert (said.for_owners, said.owners_only) == (("bob",), True)
    sealed = [message(one, LATER, "http://x", seal=SEAL) for one in (first, more)]
    # The new one may neither silence nor acknowledge it.
    assert ["Silence 4 h" in body(one) for one in sealed] == [True, False]
    over = resolved(3, impact=hits("carol"), subject=REAL, severity=WARNING)
    end = Case(
        notice=the_notice(over, [first, more], MAIL),
        profile=MAIL,
        siblings=(first, more),
        now=LATER,
        settings=SETTINGS,
    )
    said = message(end.notice, LATER, "http://x", notified_owners=notified_owners(end.sent))
    assert (said.for_owners, said.owners_only) == (("alice", "bob"), False)


@pytest.mark.parametrize("outcome", [Delivered(), Refused(reason="no such address")])
def test_who_is_newly_hit_hears_of_it_and_the_others_reminder_keeps_its_time(
    outcome: Outcome,
) -> None:
    going = attempt_started(the_notice(opened(subject=REAL), [], MAIL, 0.0), NOON, 15.0)
    told, reminder = attempt_ended(going, Delivered(), NOON, 0.5, SETTINGS)
    more = changed(2, impact=hits("alice", "bob"), subject=REAL)
    hit = the_notice(more, [told, reminder], MAIL)
    assert hit.verdict is Verdict.NEWLY_HIT
    case = Case(notice=hit, profile=MAIL, siblings=(told,), now=LATER, settings=SETTINGS)
    at = case.reminder_from(hit.verdict)
    ended, again = attempt_ended(
        attempt_started(hit, LATER, 15.0), outcome, LATER, 0.5, SETTINGS, reminder_from=at
    )
    assert (again.due_at, again.number) == (NOON + seconds(14_400), 2)
    # The others' clock of changes is their own, too; and what waits until a reminder is due is in it.
    named = changed(3, impact=hits("bob"), subject=REAL, title="A cable is loose")
    assert the_notice(named, [told, ended], MAIL, 410.0).verdict is Verdict.EXPLAINED
    late = changed(4, impact=hits("bob", "carol"), subject=REAL)
    assert the_notice(late, [told], MAIL, 14_500.0).verdict is Verdict.STILL_STANDING


def test_what_grows_is_held_against_what_all_have_heard() -> None:
    first = sent(opened(1, impact=hits("alice", gpus=8), subject=REAL, severity=WARNING), MAIL)
    more = changed(2, impact=hits("alice", "bob", gpus=12), subject=REAL, severity=WARNING)
    hit = sent(more, MAIL, (first,))
    grown = changed(3, impact=hits("alice", gpus=16), subject=REAL, severity=WARNING)
    verdicts = [one.verdict for one in (hit, the_notice(grown, [first, hit], MAIL, 900.0))]
    assert verdicts == [Verdict.NEWLY_HIT, Verdict.GREW]


def test_what_nobody_holds_is_not_told_to_owners() -> None:
    notice = the_notice(opened(impact=Impact(), subject=REAL), [], MAIL)
    assert (notice.verdict, notice.state) == (Verdict.NO_OWNER, NoticeState.NOT_SENT)


@pytest.mark.parametrize(
    ("condition", "title", "at_once"),
    [
        ("port_down", "Network port is down", True),
        # It flaps and is up again and again; and what was told by this name before.
        ("port_flapping", "Network port flaps", False),
        ("port_down", "Network link has physical errors", False),
    ],
)
def test_a_bad_link_that_is_lost_waits_for_no_interval(
    condition: str, title: str, at_once: bool
) -> None:
    fault = "port_errors"
    first = sent(opened(fault=fault, title="Network link has physical errors"))
    lost = changed(number=3, fault=fault, condition=condition, title=title)
    soon = the_notice(lost, [first], after=30.0)
    assert (soon.verdict is Verdict.EXPLAINED and soon.due_at == soon.at) is at_once
    assert message(soon, NOON, "https://gpus.example.org").loud is at_once
