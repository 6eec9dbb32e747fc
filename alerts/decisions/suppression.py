"""Suppression: the rules that hold a message back, whatever its incident's history.

They hold it for a while or for good. `decide` applies them in turn to every notice but an end, which
is sent to whoever was notified of the beginning, also in a silence or at night. Some let through what
was told before.
"""

from datetime import datetime, timedelta

from accounting.efficiency.idle_reason import IDLE
from gpuvigil.clock import moment
from gpuvigil.faults import trial
from gpuvigil.faults.gpu_states import UNHEARD
from gpuvigil.lifecycle import State

from ..messages.self_monitoring import CHANNEL_FAILED, DIGEST, OWN
from ..routing.case import Case, Ruling
from ..routing.notice import Kind, NoticeState, Verdict, is_idle_end, is_idle_notice
from ..routing.week_hours import begins, ends

# A silence may be ended early, and so may what inhibits: both are checked again this often.
CHECK_AGAIN = timedelta(seconds=60)


def about_gpuvigil(case: Case) -> Ruling | None:
    """Send a digest to its own channel in any case; report a failing channel through others."""
    subject = case.incident.subject
    if subject.cluster != OWN:
        return None
    its_own = subject.node == case.profile.name
    if case.incident.fault == DIGEST:
        if its_own and case.notice.repeat:
            return Ruling(verdict=Verdict.DIGEST, state=NoticeState.NOT_SENT)  # it was told there
        if its_own:
            return Ruling(verdict=Verdict.FIRST, kind=Kind.FIRED)
        return Ruling(verdict=Verdict.NOT_ROUTED, state=NoticeState.NOT_SENT)
    if case.incident.fault == CHANNEL_FAILED and its_own:
        return Ruling(verdict=Verdict.OWN_CHANNEL, state=NoticeState.NOT_SENT)
    return None


def of_idle_gpus(case: Case) -> Ruling | None:
    """Send notices of the idle policy to owners only, who are notified of idle GPUs by them alone."""
    if is_idle_notice(case.notice.incident):
        if case.profile.owners:
            return None
        return Ruling(verdict=Verdict.FOR_OWNER, state=NoticeState.NOT_SENT)
    if case.notice.fault == IDLE and case.profile.owners_only and not case.believed_firing:
        return Ruling(verdict=Verdict.IDLE_POLICY, state=NoticeState.NOT_SENT)
    return None


def not_routed(case: Case) -> Ruling | None:
    if case.route is not None:
        return None
    return Ruling(verdict=Verdict.NOT_ROUTED, state=NoticeState.NOT_SENT)


def out_of_service(case: Case) -> Ruling | None:
    """Hold messages about a drained node, or one that leaves; the incident itself stands.

    There is nothing to wait for: that the node is back is a step of the incident itself.
    """
    out = case.incident.out_of_service
    if out is None:
        return None
    reason = f"{Verdict.OUT_OF_SERVICE.value}: {out.reason}"
    return Ruling(verdict=Verdict.OUT_OF_SERVICE, state=NoticeState.NOT_SENT, reason=reason)


def no_owner(case: Case) -> Ruling | None:
    """Hold what nobody holds on a channel that writes to owners only: there is nobody to write to."""
    if not case.profile.owners_only or case.believed_firing or case.incident.impact.users:
        return None
    return Ruling(verdict=Verdict.NO_OWNER, state=NoticeState.NOT_SENT)


def silenced(case: Case) -> Ruling | None:
    silence = case.situation.silence(case.labels, case.now)
    if silence is None:
        return None
    why = f": {silence.reason}" if silence.reason else ""
    return Ruling(
        verdict=Verdict.SILENCED,
        due_at=min(silence.ends_at, case.now + CHECK_AGAIN),
        reason=f"silenced by {silence.by} until {moment(silence.ends_at)}{why} ({silence.id})",
    )


def inhibited(case: Case) -> Ruling | None:
    other = case.situation.inhibitor(case.settings.inhibit, case.incident, case.labels)
    if other is None:
        return None
    return Ruling(
        verdict=Verdict.INHIBITED,
        due_at=case.now + CHECK_AGAIN,
        reason=f"inhibited by {other.title} ({other.id})",
    )


def escalation(case: Case) -> Ruling | None:
    """Wait for the escalation time after the first receiver was notified; hold if acknowledged."""
    assert case.route is not None
    if case.route.escalate_seconds is None or case.believed_firing:
        return None
    taken = case.to_state is State.ACKNOWLEDGED or case.incident.acknowledged_by
    if taken or any(one.verdict is Verdict.TAKEN for one in case.newer):
        return Ruling(verdict=Verdict.TAKEN, state=NoticeState.NOT_SENT)
    began = case.first_notified_at(case.route.escalates_from)
    return _until(case, began + timedelta(seconds=case.route.escalate_seconds), Verdict.ESCALATES)


def waits_for_cause(case: Case) -> Ruling | None:
    """Delay a message that a larger fault may explain; the incident is on the page at once."""
    assert case.route is not None
    if case.believed_firing:
        return None
    wait = case.route.wait_seconds
    if case.incident.fault in UNHEARD:
        wait = max(wait, case.settings.cause_wait_seconds)
    return _until(case, case.spell_began + timedelta(seconds=wait), Verdict.WAITS_FOR_CAUSE)


def digested(case: Case) -> Ruling | None:
    assert case.route is not None
    if not case.route.digest or case.believed_firing:
        return None
    return Ruling(verdict=Verdict.DIGEST, state=NoticeState.NOT_SENT)


def on_trial(case: Case) -> Ruling | None:
    """Hold faults on trial, not right often enough here, unless readers were notified before."""
    said, proven = case.feedback, case.settings.proven
    unproven = trial.on_trial(case.notice.fault, said, proven)
    if case.believed_firing or not (unproven or case.began_on_trial):
        return None
    why = trial.why(said, proven) if unproven else "it was when this began; the next is a message"
    return Ruling(
        verdict=Verdict.ON_TRIAL, state=NoticeState.NOT_SENT, reason=f"on trial here: {why}"
    )


def quiet_hours(case: Case) -> Ruling | None:
    assert case.route is not None
    ends_at = ends(case.route.quiet_times, case.now) or begins(case.route.times, case.now)
    return None if ends_at is None else _until(case, ends_at, Verdict.OUT_OF_HOURS)


def owner_maximum(case: Case) -> Ruling | None:
    """Limit the idle notices that an owner gets in a day; the others wait until that day is over."""
    most, day = case.settings.idle_notices_per_day, timedelta(days=1)
    counts = is_idle_notice(case.notice.incident) and not is_idle_end(case.notice.incident)
    sent = sorted(case.sent_to_owner, reverse=True)
    if not (counts and 0 < most <= len(sent)) or case.believed_firing:
        return None
    return _until(case, sent[most - 1] + day, Verdict.OWNER_MAXIMUM)


def _until(case: Case, due_at: datetime, verdict: Verdict) -> Ruling | None:
    if due_at <= case.now:
        return None
    kind = Kind.UPDATED if case.believed_firing else Kind.FIRED
    return Ruling(
        verdict=verdict,
        kind=kind,
        due_at=due_at,
        reason=f"{verdict.value}; looked at again at {moment(due_at)}",
    )


# In the order in which they are applied, after those of `decide` that hold for anything.
RULES = (
    out_of_service,
    silenced,
    inhibited,
    escalation,
    waits_for_cause,
    digested,
    on_trial,
    quiet_hours,
    owner_maximum,
)
