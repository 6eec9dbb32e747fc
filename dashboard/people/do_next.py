"""What to do next: the jobs that wasted or lost most in the span, with what would help."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from accounting.hours_of_people import LEAST_HOURS, JobUse
from gpuvigil.web import page_links

from ..layout.tree import Node, el
from .links import holder_link, person_link
from .money import Money

MOST = 3
BLOCKED = "see what blocked it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing to do, and the GPU-hours of the span that it concerns."""

    job: JobUse
    what: str
    hours: float
    by_fault: bool = False


def steps(jobs: Iterable[JobUse]) -> Sequence[Step]:
    """Return the things to do with most GPU-hours, without those below `LEAST_HOURS`."""
    found = [one for job in jobs for one in _of(job) if one.hours >= LEAST_HOURS]
    return sorted(found, key=lambda one: (-one.hours, one.job.holder))[:MOST]


def _of(job: JobUse) -> Iterator[Step]:
    if job.help:
        yield Step(job=job, what=job.help, hours=job.wasted)
    yield Step(job=job, what=BLOCKED, hours=job.now.blocked, by_fault=True)


def section(jobs: Iterable[JobUse], cluster: str, money: Money | None) -> Node | None:
    """Return the list of things to do; None without any."""
    found = steps(jobs)
    if not found:
        return None
    rows = (_row(one, cluster, money) for one in found)
    head = el("h3", "Do next", el("small", "by GPU-hours of this span"))
    return el("section", head, el("ol", *rows), key=f"{cluster} next")


def _row(one: Step, cluster: str, money: Money | None) -> Node:
    job = one.job
    hours = f"{one.hours:,.1f} of its {job.now.held:,.1f} GPU-hours"
    hours += f", {money.text(_cost(one))} {money.currency}" if money else ""
    return el(
        "li",
        el("b", holder_link(cluster, job.holder), f": {one.what}"),
        el(
            "div",
            person_link(job.user, team=False),
            *((", ", person_link(job.team, team=True)) if job.team else ()),
            f" · {hours}",
            *((" · ", el("a", "its incidents", href=_incidents(job))) if one.by_fault else ()),
            class_="sub",
        ),
        key=f"{job.holder} {job.user} {one.what}",
        class_="critical" if one.by_fault else "warning",
    )


def _incidents(job: JobUse) -> str:
    """Return a link to the incidents of a month that name the job."""
    return f"{page_links.INCIDENTS}?{urlencode({'q': job.holder, 'last': '30d'})}"


def _cost(one: Step) -> float | None:
    now = one.job.now
    return None if now.cost is None or now.held <= 0 else now.cost * one.hours / now.held
