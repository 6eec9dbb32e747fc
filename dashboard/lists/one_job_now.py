"""What a running job does now, in sentences: what bounds it, what holds it up, and what it would lose."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from accounting.cost.money import Prices
from accounting.jobs.bound import UNSAID, Bound, Decision
from accounting.usage.model import cluster_key
from gpuvigil.clock import duration, from_text
from gpuvigil.clock import moment as time_of
from gpuvigil.config import AnalyzerSettings
from gpuvigil.hub_client import Hub
from gpuvigil.model import Incident, Inventory, RecordKind, readable
from gpuvigil.numbers_in_words import counted
from gpuvigil.schedulers.jobs import by_holder
from gpuvigil.store.external import store_of
from gpuvigil.topology.link_names import device_name

from ..model.short_label import short_label
from . import fleet_now, full_links, job_losses, links
from .job_losses import Reliability, incidents_of
from .jobs import SAME_PACE, Fleet, JobNow, asked, running
from .not_reporting import not_reporting, with_silence
from .one_job import KnownJob, held_on

_MOST = 100_000
_MOST_LINKS = 4  # named in a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A running job, the time of the question, and how often its cluster fails."""

    job: JobNow
    now: datetime
    reliability: Reliability
    fills: Sequence[links.Port] = ()  # the links that it fills


def running_now(
    hub: Hub,
    known: KnownJob,
    active: Sequence[Incident],
    prices: Prices,
    settings: AnalyzerSettings,
) -> Running | None:
    """Return the running job; None if it released its last GPU meanwhile. HubError or StoreError without an answer.

    `settings` say after how long a node is silent.
    """
    status = hub.status()
    now, oldest = from_text(status["now"]), status["store"].get("oldest_at")
    inventories = _inventories(hub, known.cluster)
    fleet = Fleet(
        now=now,
        allocations=[one for one in (*known.allocations, *known.others) if one.ended_at is None],
        inventories=inventories,
        incidents=active,
        jobs=by_holder([known.job] if known.job else ()),
    )
    numbers = asked(hub, now, [node.node for node in known.nodes])
    found = [job for job in running(fleet, numbers, prices) if job.holder == known.holder]
    if not found:
        return None
    start = max(now - job_losses.SPAN, from_text(oldest)) if oldest else now
    clusters = fleet_now.fetch(hub, settings, known.cluster).clusters
    return Running(
        job=with_silence(found, clusters)[0],
        now=now,
        reliability=job_losses.reliability(
            known.cluster,
            job_losses.nodes_of(inventories).get(known.cluster, 0),
            (start, now),
            incidents_of(hub, now, known.cluster),
        ),
        fills=_filled(hub, known, active, now),
    )


def _filled(
    hub: Hub, known: KnownJob, active: Sequence[Incident], now: datetime
) -> list[links.Port]:
    """Return the links of its nodes that the job fills; none of those with an incident."""
    asked_now = store_of(hub).window("port", links.ASKED, now - links.SPAN, now)
    ports = links.measured(asked_now, [known.cluster], {node.node for node in known.nodes})
    if not full_links.full(ports).any():
        return []
    held = full_links.by_node(held_on(hub, known.nodes))
    bad = {key for one in active for key in (one.subject.key, *one.members)}
    found = full_links.filled(ports, held, now)
    return [
        port
        for port, holder in found.items()
        if holder == known.holder and links.subject_of(port).key not in bad
    ]


def _inventories(hub: Hub, cluster: str) -> list[Inventory]:
    records = hub.records(RecordKind.INVENTORY, subject=cluster_key(cluster), limit=_MOST)
    return list(readable(records, Inventory.from_record))


def sentences(found: Running) -> Sequence[str]:
    """Return sentences on the job; what bounds it or holds it up comes first."""
    job = found.job
    return [
        *_first(job, found.now),
        *_pace_words(job),
        *filter(None, (job.advice, fills_words(found.fills))),
        checkpoint_words(job, found.now),
        *filter(None, (job_losses.advice(found.reliability, len(job.nodes)),)),
        *_missing(job),
    ]


def _first(job: JobNow, now: datetime) -> Iterator[str]:
    """Yield `job 7 of ann has been running on 8 GPUs of 1 node for 3 h, bound by compute: SM activity is 88 %`."""
    whose = f" of {job.user}" if job.user else ""
    where = f"{counted(len(job.gpus), 'GPU')} of {counted(len(job.nodes), 'node')}"
    ran = duration(max(now - job.started_at, timedelta()))
    runs = f"{job.holder}{whose} has been running on {where} for {ran}"
    if job.holds_up is not None:
        yield f"{runs}, held up by {_in_words(job.holds_up)}"
        return
    yield (
        f"{runs}."
        if len(job.not_reporting) == len(job.nodes)
        else f"{runs}{_bound_words(job.decision)}"
    )
    if (silent := job.unheard) is not None:
        yield f"{silent.title}{where_and_since(silent)}: whether it runs there is not known."
        return
    if job.not_reporting:
        yield not_reporting(job)
        return
    if job.slowed_by is not None:
        yield f"It is slowed down: {_in_words(job.slowed_by)}"
        return
    if job.incidents:
        worst = job.incidents[0]
        yield f"No incident holds it up. {has_incidents(job)}{worst.title}{where_and_since(worst)}."
        return
    yield "No incident holds it up."


def fills_words(found: Sequence[links.Port]) -> str:
    """Say which links the job fills; "" without any."""
    names = [f"{node} {device_name(device, port)}" for _, node, device, port in found]
    if not names:
        return ""
    more = f" and {counted(len(names) - _MOST_LINKS, 'more link')}" if names[_MOST_LINKS:] else ""
    many = "these links" if len(names) > 1 else "this link"
    least = f"{full_links.FULL_LOAD:.0f} % of the speed or more"
    return f"It fills {many}: {', '.join(names[:_MOST_LINKS])}{more} ({least}). That is no fault."


def _bound_words(found: Decision | None) -> str:
    if found is None:
        return "; what bounds it was not measured."
    if found.bound in UNSAID:
        word = "judged" if found.bound is Bound.ON_CALL else "known"
        return f". What bounds it is not {word}: {found.text}."
    if found.bound is Bound.NOTHING:
        return f" and is idle: {found.text}."
    sure = f"confidence {found.confidence:.2f}"
    return f", bound by {found.bound.value} ({sure}): {found.text}."


def has_incidents(job: JobNow) -> str:
    """Return the words before the title of the worst incident of a job that none holds up."""
    if len(job.incidents) == 1:
        return "It has an incident: "
    return f"It has {counted(len(job.incidents), 'incident')}, first: "


def where_and_since(one: Incident) -> str:
    """Return where an incident is and since when, as it follows the title."""
    return f" ({short_label(one) or one.subject.node}), since {time_of(one.since)}"


def _in_words(one: Incident) -> str:
    todo = f" Do now: {one.action.rstrip('.')}." if one.action else ""
    return f"{one.title}{where_and_since(one)}.{todo} Incident {one.id}."


def _pace_words(job: JobNow) -> Iterator[str]:
    low, high = SAME_PACE
    pace = job.pace_percent
    if pace is not None and not low <= pace <= high:
        yield f"Its pace is {pace:.0f} % of the hour before."
    elif pace is not None and job.incidents:
        yield f"Its pace is unchanged: {pace:.0f} % of the hour before."
    if (steps := job.activity.steps if job.activity else None) is not None:
        takes = "A step takes" if job.holds_up is None else "Its last steps took"
        yield f"{takes} {steps.seconds:.2f} s, reported by {counted(steps.ranks, 'rank')}."


def checkpoint_words(job: JobNow, now: datetime) -> str:
    """Say how much work a failure now would lose."""
    age, risk = job.checkpoint_age, job.at_risk_gpu_hours
    if (age is None or risk is None) and job.began_before:
        return "No checkpoint of it is known, nor when it began: all its work is at risk."
    if age is None or risk is None:
        most = len(job.gpus) * ((now - job.started_at) / timedelta(hours=1))
        return f"No checkpoint of it is known: up to {max(most, 0.0):,.1f} GPU-hours are at risk."
    return f"Its last checkpoint is {duration(age)} old: {risk:,.1f} GPU-hours are at risk."


def _missing(job: JobNow) -> Iterator[str]:
    if job.decision is not None and job.decision.missing:
        yield f"Not measured: {', '.join(job.decision.missing)}."
