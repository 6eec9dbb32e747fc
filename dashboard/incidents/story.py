"""One incident for people: its state, who has it, and what happened step by step; pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from accounting.hardware.incident_steps import Moment, steps
from gpuvigil.clock import duration
from gpuvigil.lifecycle import ACTIVE, State
from gpuvigil.model import CoveredBy, Incident, Record, Transition
from gpuvigil.numbers_in_words import capitalized, counted

from .hub_queries import Story

# The analyzer may be silent for three of its passes, and at least for this long.
LEAST_PATIENCE = timedelta(seconds=30)
PASSES = 3

_ACTIVE = frozenset(state.value for state in ACTIVE)


class AssignmentState(Enum):
    """Whether somebody has acknowledged an incident."""

    BY_NOBODY = "nobody has taken it"
    WAITS = "taken, and the analyzer has not said so yet"
    TAKEN = "taken"
    OVER = "it is over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Who has acknowledged or taken over the incident, with a line for people."""

    state: AssignmentState
    by: str
    text: str


def assignment(story: Story, now: datetime) -> Assignment:
    """Return who has the incident. An acknowledgement counts once written; the analyzer confirms it later."""
    incident = story.incident
    if incident.state not in _ACTIVE:
        return Assignment(
            state=AssignmentState.OVER, by="", text="It is over: there is nothing to acknowledge."
        )
    began = max((step.at for step in story.transitions if _ends(step)), default=None)
    given = [one for one in story.acknowledgements if began is None or one.at > began]
    over = next((one for one in reversed(given) if one.to), None)
    if over is not None:
        ago = duration(now - over.at)
        text = f"Handed to {over.to} by {over.by}, {ago} ago."
        return Assignment(state=AssignmentState.TAKEN, by=over.to, text=text)
    if incident.state == State.ACKNOWLEDGED.value:
        by = incident.acknowledged_by or (given[-1].by if given else "somebody")
        since = next((one.at for one in given if one.by == by), incident.updated_at)
        return Assignment(
            state=AssignmentState.TAKEN, by=by, text=f"Taken by {by}, {duration(now - since)} ago."
        )
    if not given:
        return Assignment(state=AssignmentState.BY_NOBODY, by="", text="Nobody has taken it.")
    by = given[0].by
    why = analyzer_silence(story.pulses, now)
    text = f"Taken by {by}. Reminders end within seconds."
    if why:
        text = f"Taken by {by}. Reminders go on until the analyzer reads that: {why}"
    return Assignment(state=AssignmentState.WAITS, by=by, text=text)


def analyzer_silence(pulses: Iterable[Record], now: datetime) -> str:
    """Return why the analyzer does not react; empty while it sends pulses."""
    own = [pulse for pulse in pulses if pulse.id.partition(":")[0] == "analyzer"]
    if not own:
        return "no analyzer has ever reported. Start gpuvigil analyze."
    last = max(own, key=lambda pulse: pulse.at)
    tick = last.body.get("tick_seconds")
    seconds = PASSES * tick if isinstance(tick, int | float) else 0.0
    silent = now - last.at
    if silent <= max(timedelta(seconds=seconds), LEAST_PATIENCE):
        return ""
    return f"it has been silent for {duration(silent)}. Check that gpuvigil analyze runs, and read its log."


def timeline(story: Story) -> tuple[Moment, ...]:
    """Return everything that happened, oldest first, beginning with the fault's onset."""
    return steps(story.incident, story.transitions, story.acknowledgements, story.actions)


def _ends(step: Transition) -> bool:
    return step.to_state == State.RESOLVED.value


def covered_by(story: Story) -> str:
    """Return in words which incident now covers this ended one; empty if none does."""
    last = story.transitions[-1] if story.transitions else None
    if last is None or not _ends(last) or not isinstance(last.cause, CoveredBy):
        return ""
    return last.cause.what


def on_trial(story: Story) -> list[str]:
    """Return why it is only in the digest: its rule is still on trial at this site. Empty otherwise."""
    newest = max((int(one.body.get("number") or 0) for one in story.notices), default=0)
    reasons = {
        str(one.body.get("reason"))
        for one in story.notices
        if one.body.get("number") == newest and one.body.get("verdict") == "on_trial"
    }
    return [f"{capitalized(reason)}." for reason in sorted(reasons)]


def whose(incident: Incident) -> str:
    """Say whose work the incident affects."""
    impact = incident.impact
    if impact.text:
        return impact.text
    if not impact.gpus:
        return "no GPU is blocked"
    holders = ", ".join(impact.holders[:5])
    more = f" and {len(impact.holders) - 5} more" if len(impact.holders) > 5 else ""
    users = f" ({', '.join(impact.users[:5])})" if impact.users else ""
    held = f"allocated to {holders}{more}{users}" if holders else "not allocated"
    return f"{counted(impact.gpus, 'GPU')} blocked; {held}"
