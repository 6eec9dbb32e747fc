"""The message about an incident, in one fixed order; pure.

What failed, where, since when, who is hit, on what evidence, what to do now, and a link that still
shows the same window tomorrow. Names of jobs, users and programs are untrusted text: they are cut,
and lose what a terminal or a chat could take for more than text.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import quote

from gpuvigil.clock import duration, moment
from gpuvigil.faults import FAULTS, Shared
from gpuvigil.model import SWITCH_DEVICE, Impact, Incident, Severity, Subject, with_kind
from gpuvigil.topology.link_names import port_name
from gpuvigil.web import page_links
from gpuvigil.web.signed_links import PATH, Seal

from ..routing.notice import Kind, Notice, Verdict, is_idle_notice
from ..routing.update_policy import owners, stops_now
from .self_monitoring import OWN

LISTED = 10
LONGEST_LINE = 300
# Answers that list things may be longer; all together stay far below what receivers take.
LONGEST_LIST = 1000
_LOUD = frozenset(
    {
        *(Verdict.WORSE, Verdict.GREW, Verdict.STILL_STANDING),
        *(Verdict.RETURNED, Verdict.RESUMED),
    }
)
# What goes before the title.
_SAID = {
    Verdict.ESCALATED: "Nobody has taken it",
    Verdict.RETURNED: "Back again",
    Verdict.RESUMED: "Back in service, but not cured",
    Verdict.GREW: "Now larger",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message, the same for every channel; texts are clean and bounded."""

    notice: str  # stable over attempts: receivers may drop what they have seen
    incident: str
    fingerprint: str
    fault: str
    severity: Severity
    subject: Subject
    simulated: bool
    firing: bool
    covered: bool  # not firing only because another incident explains it
    at: datetime
    starts_at: datetime
    ends_at: datetime | None
    summary: str  # what and where, in one line
    where: str
    since: str
    impact: str
    evidence: str
    action: str
    source: str
    link: str  # the subject's page with the incident's window
    incident_link: str  # the incident's own page, where it is acknowledged
    owners: tuple[str, ...] = ()  # users whose GPUs it blocks: untrusted text
    accounts: tuple[str, ...] = ()  # of their jobs
    partitions: tuple[str, ...] = ()
    runbook: str | None = None  # the page on what to do about such a fault
    ended: str = ""  # why it is over, where somebody knows
    loud: bool = True  # worth a sound; what merely changes is not
    worse: bool = False  # than sent before: the summary says how bad it is
    news: bool = True  # worth a message of its own; a mere change is not
    for_owners: tuple[str, ...] = ()  # the owners it is to reach, or who heard of it before
    owners_only: bool = False  # nobody else need hear it
    answer_link: str | None = None  # signed: where it can be answered without a sign-in
    receipt: str | None = None  # the receiver's name for the message that this one follows

    def only_for_owners(self, only: bool = True) -> "Message":
        """Return the message for owners only: acknowledging and silencing are the operators'."""
        return replace(self, owners_only=True, answer_link=None) if only else self

    @property
    def text(self) -> str:
        """The whole message, a line per question."""
        lines = [
            self.summary,
            f"Where: {self.where}",
            f"Since: {self.since}",
            f"Impact: {self.impact}",
            f"Evidence: {self.evidence}",
            f"Do now: {self.action}",
            f"Page: {self.link}",
            *([f"Runbook: {self.runbook}"] if self.runbook else []),
            f"{'Acknowledge' if self.firing and not self.owners_only else 'Incident'}: {self.answer_link or self.incident_link}",
        ]
        return "\n".join(lines)


def _is_loud(notice: Notice) -> bool:
    """Return whether the message makes a sound where a channel has one."""
    stops = notice.verdict is Verdict.EXPLAINED and stops_now(notice)
    return notice.kind is Kind.FIRED or notice.verdict in _LOUD or stops


def message(  # noqa: PLR0913 - each may be said, or not
    notice: Notice,
    now: datetime,
    external_url: str,
    receipt: str | None = None,
    *,
    seal: Seal | None = None,
    runbook_url: str = "",
    notified_owners: Collection[str] = (),
    previous_title: str = "",
    cost: str = "",
    owners_only: bool = False,
) -> Message:
    """Return the message of a notice that is sent at `now`; links lead to `external_url`.

    `notified_owners` were notified as owners before: they get the end, and others that they are hit.
    `previous_title` is the title that was sent last. `cost` is the cost in words, where it is known.
    `owners_only`: its readers are owners only, who do not acknowledge for those who run the
    machines.
    In `runbook_url` the word `{fault}` stands for the fault's name; an empty one means no runbook.
    ConfigError when the key of the links cannot be read at the moment.
    """
    incident = notice.to_incident()
    over = notice.kind is Kind.RESOLVED
    ends_at = (incident.resolved_at or notice.at) if over else None
    own = incident.subject.cluster == OWN
    for_one = notice.verdict is Verdict.NEWLY_HIT or is_idle_notice(notice.incident)
    span = (incident.since, ends_at or now)
    page = page_links.PIPELINE if own else page_links.around(incident.subject, *span)
    has_page = not own and not is_idle_notice(incident.id)
    return Message(
        notice=notice.id,
        incident=incident.id,
        fingerprint=incident.fingerprint,
        fault=incident.fault,
        severity=incident.severity,
        subject=incident.subject,
        simulated=incident.simulated,
        firing=not over,
        covered=_is_covered(notice),
        at=now,
        starts_at=incident.since,
        ends_at=ends_at,
        summary=_summary(incident, notice, now, ends_at),
        where=clean(_where(incident), LONGEST_LIST),
        since=_since(incident.since, now, ends_at),
        impact=clean(
            ("until then: " if over else "") + _impact(incident.impact, cost), LONGEST_LIST
        ),
        evidence=clean(_evidence(incident, previous_title), LONGEST_LIST),
        action=clean(_action(incident, notice)),
        source=clean(incident.source),
        link=page_links.absolute(external_url, page),
        incident_link=page_links.absolute(
            external_url,
            page_links.incident_page(incident.id) if has_page else page_links.INCIDENTS,
        ),
        owners=incident.impact.users,
        for_owners=_for_owners(notice, notified_owners),
        accounts=incident.impact.accounts,
        partitions=incident.impact.partitions,
        runbook=runbook_url.replace("{fault}", quote(incident.fault, safe="")) or None,
        ended=clean(notice.cause) if over and not _is_covered(notice) else "",
        loud=_is_loud(notice),
        worse=not over and notice.verdict is Verdict.WORSE,
        news=notice.verdict is not Verdict.CHANGED,
        answer_link=_answer_link(incident.id, now, external_url, seal) if has_page else None,
        receipt=receipt,
    ).only_for_owners(owners_only or for_one)


def _for_owners(notice: Notice, notified: Collection[str]) -> tuple[str, ...]:
    users = tuple(owners(notice))
    if notice.kind is Kind.RESOLVED and notified:
        return tuple(sorted(notified))
    if notice.verdict is Verdict.NEWLY_HIT:
        return tuple(user for user in users if user not in notified)
    return users


def _answer_link(incident: str, now: datetime, url: str, seal: Seal | None) -> str | None:
    return None if seal is None else page_links.absolute(url, PATH + seal.token(incident, now))


def clean(text: str, longest: int = LONGEST_LINE) -> str:
    """Return `text` as one printable line of at most `longest` characters."""
    printable = "".join(ch if ch.isprintable() else " " for ch in text)
    line = " ".join(printable.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def listed(items: Sequence[str], most: int = LISTED) -> str:
    """Return the first items, and how many more there are."""
    shown = ", ".join(clean(item, 100) for item in items[:most])
    return shown if len(items) <= most else f"{shown} and {len(items) - most} more"


def _summary(incident: Incident, notice: Notice, now: datetime, ends_at: datetime | None) -> str:
    what = clean(incident.title, 150) or incident.fault
    label = clean(_label(incident), 100)
    named = what if label in what else f"{what}: {label}"
    if ends_at is not None:
        ended = "Covered by another fault" if _is_covered(notice) else "Resolved"
        named = f"{ended} after {duration(ends_at - incident.since)}: {named}"
    elif notice.verdict is Verdict.STILL_STANDING:
        named = f"Still there after {duration(now - incident.since)}: {named}"
    elif notice.verdict in _SAID:
        named = f"{_SAID[notice.verdict]}: {named}"
    elif notice.verdict is Verdict.WORSE:
        named = f"Now {incident.severity.value}: {named}"
    elif notice.kind is Kind.UPDATED:
        named = f"Update: {named}"
    return f"[simulated] {named}" if incident.simulated else named


def _is_covered(notice: Notice) -> bool:
    """Return whether an incident ended only because another one explains it."""
    return notice.kind is Kind.RESOLVED and notice.covered_by is not None


def _action(incident: Incident, notice: Notice) -> str:
    if notice.kind is not Kind.RESOLVED:
        return incident.action or "Open the link."
    if notice.covered_by is not None:
        return f"Follow the incident that covers it: {notice.covered_by.what}."
    if incident.severity is Severity.CRITICAL and incident.action:
        return f"Nothing now. Should it come back: {incident.action}"
    return "Nothing is left to do."


def _label(incident: Incident) -> str:
    return clean(incident.label) or _name(incident.subject)


def _where(incident: Incident) -> str:
    subject = incident.subject
    label = _label(incident)
    if label == with_kind("cluster", subject.cluster):
        return f"{clean(label)}: {_by_node(incident.members)}"
    place = f"{label} ({subject.gpu})" if subject.gpu and subject.gpu not in label else label
    # What lies below a node is counted, not listed.
    below = f"{subject.key}/"
    others = [key for key in incident.members if key != subject.key and not key.startswith(below)]
    fault = FAULTS.get(incident.fault)
    if fault is not None and fault.shared is Shared.SWITCH and subject.device != SWITCH_DEVICE:
        others = [key for key in others if "/port/" not in key]  # its label names their nodes
    more = f": {clean(incident.gpus)}" if incident.gpus else ""
    if len(others) > LISTED:
        more += f"; also {_by_node(others)}"
    elif others:
        more += f"; also {listed([_short(key) for key in others])}"
    return f"{clean(place)}, {with_kind('cluster', clean(subject.cluster, 100))}{more}"


def _by_node(keys: Sequence[str]) -> str:
    """Return many places in a readable form: `256 GPUs on 32 nodes: n00 (8), n01 (8) ...`."""
    subjects = [subject for subject in map(_subject, keys) if subject is not None]
    nodes = Counter(subject.node for subject in subjects)
    gpus = sum(subject.gpu is not None for subject in subjects)
    what = f"{gpus} GPUs" if gpus == len(keys) else f"{len(keys)} places"
    if gpus == 0 and len(nodes) == len(keys):
        return f"{len(nodes)} nodes: {listed(list(nodes))}"
    named = [f"{node} ({count})" for node, count in nodes.items()]
    return f"{what} on {len(nodes)} node{'s' if len(nodes) > 1 else ''}: {listed(named)}"


def _subject(key: str) -> Subject | None:
    try:
        return Subject.parse(key)
    except ValueError:
        return None


def _short(key: str) -> str:
    subject = _subject(key)
    return key if subject is None else _name(subject)


def _name(subject: Subject) -> str:
    if subject.device is not None:
        return port_name(subject)
    return f"{subject.node} {subject.gpu}" if subject.gpu else subject.node


def _since(since: datetime, now: datetime, ends_at: datetime | None) -> str:
    if ends_at is None:
        return f"{moment(since)} ({duration(now - since)} ago)"
    return f"{moment(since)} until {moment(ends_at)} ({duration(ends_at - since)})"


def _impact(impact: Impact, cost: str) -> str:
    """Return who is hit, and at what cost; for jobs also their accounts and partitions."""
    jobs = _those("account", impact.accounts) + _those("partition", impact.partitions)
    return _who(impact) + (f"; {cost}" if cost else "") + jobs


def _those(what: str, names: Sequence[str]) -> str:
    return f"; {what}{'s' if len(names) > 1 else ''} {listed(names)}" if names else ""


def _who(impact: Impact) -> str:
    if impact.text:
        return impact.text
    if impact.gpus == 0:
        return "no GPU is blocked"
    blocked = f"{impact.gpus} GPU{'s' if impact.gpus > 1 else ''} blocked"
    held = f"; allocated to {listed(impact.holders)}" if impact.holders else "; not allocated"
    users = f" ({listed(impact.users)})" if impact.users else ""
    return blocked + held + users


def _evidence(incident: Incident, previous_title: str) -> str:
    facts = [item for item in incident.evidence if not item.detail]
    # Where it has another title now, nothing else says that it is the same incident.
    said = (
        [f"sent before as: {clean(previous_title, 150)}"]
        if previous_title not in {"", incident.title}
        else []
    )
    said += [clean(item.text) for item in facts[:LISTED]]
    left_out = len(facts) - LISTED
    if left_out > 0:
        said.append(f"and {left_out} more")
    if incident.covers:
        said.append(f"also explains: {listed(_counted(incident.covers))}")
    return "; ".join(said) or "see the link"


def _counted(covers: Sequence[str]) -> list[str]:
    """Group texts `place: what`: the same in several places is listed once, with their number."""
    places: dict[str, list[str]] = {}
    for cover in covers:
        places.setdefault(cover.partition(": ")[2], []).append(cover)
    return [them[0] if len(them) == 1 else f"{len(them)} x {what}" for what, them in places.items()]
