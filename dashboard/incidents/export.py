"""Export of one incident: Markdown for people, JSON for programs; pure."""

import json
from collections.abc import Sequence
from datetime import datetime

from accounting.hardware.incident_steps import Moment, span
from accounting.hardware.node_changes import Changed
from accounting.hardware.similar_incidents import EarlierIncident, outcome
from gpuvigil.clock import moment
from gpuvigil.markdown import text

from .hub_queries import Similar, Story
from .story import whose


def as_json(story: Story) -> str:
    """Return all records of the incident as the hub has them."""
    records = [
        story.incident.to_record(),
        *(one.to_record() for one in story.transitions),
        *(one.to_record() for one in story.acknowledgements),
        *(one.to_record() for one in story.rma),
        *(one.to_record() for one in story.actions),
        *story.notices,
    ]
    return json.dumps([one.to_json() for one in records], indent=1)


def as_markdown(
    story: Story,
    moments: Sequence[Moment],
    changes: Sequence[Changed],
    past: Similar,
    now: datetime,
) -> str:
    """Return what the page says, for a ticket or a post-mortem."""
    one = story.incident
    lines = [
        f"# {text(one.title)}: {text(one.label or one.subject.key)}",
        "",
        f"{one.severity.value}, {one.state}, {span(one, now)}. "
        f"Cluster {text(one.subject.cluster)}.",
        "",
        text(whose(one)),
    ]
    lines += ["", f"Do now: {text(one.action)}"] if one.action else []
    lines += _part("Evidence", [item.text for item in one.evidence])
    lines += _part("Covers", one.covers)
    lines += _part("Timeline", [_moment(step) for step in moments])
    lines += _part(
        "Changed before it",
        [f"{moment(it.at)} {it.what}: {it.old} → {it.new}" for it in changes],
    )
    before = ["not known: the hub does not answer"] if past.unknown else []
    lines += _part("Similar before", before or [_before(it, now) for it in past.shown])
    lines += ["", text(f"Incident {one.id}, fault {one.fault}, subject {one.subject.key}.")]
    return "\n".join(lines) + "\n"


def _part(name: str, lines: Sequence[str]) -> list[str]:
    return ["", f"## {name}", "", *(f"- {text(line)}" for line in lines)] if lines else []


def _moment(step: Moment) -> str:
    return f"{moment(step.at)} {step.title}: {step.text}"


def _before(it: EarlierIncident, now: datetime) -> str:
    one = it.incident
    return f"{moment(one.since)} {one.label}: {it.what_helped or 'not noted'}, {outcome(it, now)}"
