"""`gpuvigil why JOB`: what bounds a running job, or how and why a job ended; what happened on its nodes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from accounting.cost.money import Prices
from accounting.job_ending import Clue, Ending, Verdict, verdict
from accounting.jobs.bound import UNSAID
from dashboard.lists.one_job import KnownJob, active_incidents, around_its_end, find_job
from dashboard.lists.one_job_now import Running, running_now, sentences
from dashboard.lists.table import Column, Grid, Value, length, percents, tenths
from gpuvigil.clock import to_text
from gpuvigil.config import AnalyzerSettings
from gpuvigil.hub_client import Hub
from gpuvigil.model import Incident, Inventory, Subject, readable

COLUMNS = (
    Column(key="at", title="AT", show=lambda at: to_text(at)[:19].replace("T", " ")),
    Column(key="where", title="WHERE", flexible=True),
    Column(key="what", title="WHAT", flexible=True),
    Column(key="speaks_for", title="SPEAKS FOR"),
    Column(key="job", title="JOB", flexible=True),
    Column(key="why", title="WHY", flexible=True),
    Column(key="said", title="SAID", flexible=True),
    Column(key="state", title="STATE"),
    Column(key="exit_code", title="EXIT CODE"),
    Column(key="user", title="USER", flexible=True),
    Column(key="ended_at", title="ENDED", show=to_text),
    Column(key="bound", title="BOUND BY"),
    Column(key="bound_said", title="BECAUSE", flexible=True),
    Column(key="confidence", title="CONFIDENCE", show="{:.2f}".format, right=True),
    Column(key="pace_percent", title="PACE", show=percents, right=True),
    Column(key="held_up_by", title="HELD UP BY"),
    Column(key="checkpoint_age_seconds", title="CHECKPOINT", show=length, right=True),
    Column(key="at_risk_gpu_hours", title="AT RISK", show=tenths, right=True),
    Column(key="cluster", title="CLUSTER", flexible=True),
)
_OF_ROWS = 4  # the other columns describe the job and are the same in every row


def fetch(
    hub: Hub,
    wanted: str,
    cluster: str | None,
    prices: Prices = Prices(),  # noqa: B008 - it is frozen
    settings: AnalyzerSettings = AnalyzerSettings(),  # noqa: B008 - it is frozen
) -> Grid:
    """Return the table for a job; ConfigError for an unknown job, HubUnavailable or HubRefused from the hub."""
    told = find_job(hub, wanted, cluster)
    events, incidents = around_its_end(hub, told)
    found, stands = verdict(told.ending, events, incidents), active_incidents(hub, told)
    named = [*(one.where for one in found.clues), *(one.subject.key for one in stands)]
    # The scheduler reports a job's end earlier than its nodes do.
    runs = told.runs and told.ending.ended_at is None
    now = running_now(hub, told, stands, prices, settings) if runs else None
    return grid(told, found, stands, _indices(hub, {Subject.parse(key) for key in named}), now)


def grid(
    told: KnownJob,
    found: Verdict,
    stands: Sequence[Incident] = (),
    indices: Mapping[str, int] = MappingProxyType({}),
    now: Running | None = None,
) -> Grid:
    """Return a row per thing that happened around the end, oldest first; programs get the verdict in each.

    `stands`: the open incidents on the nodes of a job that has not ended. `now`: what a running job
    does. `indices`: GPU indices by UUID, for people.
    """
    ending = told.ending
    user = next(
        (one.user for one in told.allocations if one.user), told.job.user if told.job else None
    )
    of_job: tuple[Value, ...] = (
        str(told.holder),
        found.why.value,
        found.text,
        ending.state,
        ending.exit_code,
        user,
        ending.ended_at,
        *_does(now),
        told.cluster,
    )
    own: tuple[Value, ...] = (
        ending.ended_at,
        str(told.holder),
        _end(ending) or _goes_on(now) or found.text,
        found.why.value,
    )
    rows = [(*_clue(one), *of_job) for one in found.clues]
    rows += [(one.since, _where(one.subject.key), one.title, None, *of_job) for one in stands]
    earlier = sum(
        1 for one in found.clues if ending.ended_at is not None and one.at <= ending.ended_at
    )
    rows.insert(earlier, (*own, *of_job))
    return Grid(
        columns=[
            replace(one, show=partial(_in_words, indices)) if one.key == "where" else one
            for one in COLUMNS
        ],
        rows=rows,
        for_people=_OF_ROWS,
        same_from=_OF_ROWS,
        head=[_sentence(told, found, user)] if now is None else sentences(now),
        notes=() if now and now.job.not_reporting else _notes(told, rows[1:]),
    )


def _does(now: Running | None) -> tuple[Value, ...]:
    """Return a job's bound, pace, the incident that holds it up, and its checkpoint; all None if not running."""
    if now is None:
        return (None,) * 7
    job, found, up = now.job, now.job.decision, now.job.holds_up
    return (
        None if found is None else found.bound.value,
        None if found is None else found.text,
        None if found is None else found.confidence,
        job.pace_percent,
        None if up is None else up.id,
        job.checkpoint_age,
        job.at_risk_gpu_hours,
    )


def _goes_on(now: Running | None) -> str:
    """Say in short how a running job gets on; empty where that is not known."""
    if now is None:
        return ""
    job = now.job
    if job.holds_up is not None:
        return "it is held up"
    if not job.is_known:
        return "it is not known whether it runs"
    if job.slowed_by is not None:
        return "it is slowed down"
    found = job.decision
    if found is None or found.bound in UNSAID:
        return ""
    return f"it is running, bound by {found.bound.value}"


def _notes(told: KnownJob, others: Sequence[Sequence[Value]]) -> Sequence[str]:
    """Explain why the table has only the job's own row; empty if it has others."""
    if others or not told.nodes:
        return ()
    if told.ending.ended_at is None:
        return ("Its nodes have no open incident.",)
    return ("Its nodes reported nothing from 10 minutes before its end to 5 after.",)


def _sentence(told: KnownJob, found: Verdict, user: str | None) -> str:
    ending = told.ending
    whose = f" of {user}" if user else ""
    if ending.ended_at is None:
        unseen = "" if told.allocations else "; no node reports which GPUs it has"
        return f"{told.holder}{whose} has not ended: {found.text}{unseen}."
    when = to_text(ending.ended_at)[:19].replace("T", " ")
    return (
        f"{told.holder}{whose} ended {when} ({_end(ending)}). Why: {found.why.value}: {found.text}."
    )


def _end(ending: Ending) -> str:
    """Say how the job ended, in Slurm's words; empty for a job that has not ended."""
    if ending.ended_at is None:
        return ""
    code = f"exit code {ending.exit_code}" if ending.exit_code else ""
    return ", ".join(filter(None, (ending.state, code))) or "no end state was reported"


def _clue(one: Clue) -> tuple[Value, ...]:
    return one.at, _where(one.where), one.what, one.speaks_for.value if one.speaks_for else None


def _where(key: str) -> str:
    """Return a subject's node and the part in it, without its cluster."""
    subject = Subject.parse(key)
    return " ".join(filter(None, (subject.node, subject.gpu, subject.device, subject.port)))


def _in_words(indices: Mapping[str, int], where: str) -> str:
    """Return a place with the GPU's index instead of its UUID, as the other commands name it."""
    node, _, uuid = where.partition(" ")
    return f"{node} GPU {indices[uuid]}" if uuid in indices else where


def _indices(hub: Hub, of: Iterable[Subject]) -> Mapping[str, int]:
    """Return the GPU index by UUID for these subjects' nodes, as far as their inventories say."""
    records = [hub.inventory(node) for node in sorted({it.of_node() for it in of if it.gpu})]
    known = readable([one for one in records if one is not None], Inventory.from_record)
    return {gpu.uuid: gpu.index for one in known for gpu in one.gpus if gpu.index is not None}
