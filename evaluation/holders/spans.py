"""From looks and notices to what was right: spans of idle GPUs, and jobs whose holder should be notified."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from accounting.efficiency.idle_reason import FOR_JOBS, Idleness

from .idle import IdleJudge, Mail
from .truth import GpuTruth, Right, Truth

# A shorter span could not be looked at twice, and need not be reported.
_LEAST_LOOKS = 2
_HEARD_WITHIN = timedelta(minutes=10)
# The true share covers another span than a store query can: near the limit either answer is right.
_SHARE_EDGE = 0.1
_BLAMING = frozenset(one.value for one in Idleness if one.blames)
_MAY_BLAME = frozenset({Right.OWN, Right.EITHER, Right.EDGE})
_IDLE = {Right.OWN: "own", Right.EXCUSED: "excused"}
_One = tuple[datetime, GpuTruth, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """GPUs of one job with the same truth and the same report.

    `sort`: `own` or `excused`, a span in which they were idle; `blamed`, one in which their holder was blamed;
    `alike`, GPUs that nobody may be blamed for; `due`, a notice that should be sent; `given`, one that was sent.
    """

    sort: str
    job: int
    name: str
    why: str  # the true reason
    said: str
    right: bool
    gpus: int = 1
    seconds: float | None = None  # until it was reported

    def to_json(self) -> list[Any]:
        return list(asdict(self).values())

    @classmethod
    def from_json(cls, values: Sequence[Any]) -> "Row":
        return cls(**dict(zip(cls.__dataclass_fields__, values, strict=True)))


def rows(judge: IdleJudge, truth: Truth) -> list[Row]:
    """Return everything of one fleet."""
    found: Counter[Row] = Counter()
    by_gpu: dict[tuple[int, int], list[_One]] = defaultdict(list)
    for now, of_gpus in judge.looks:
        for gpu, (said, told) in of_gpus.items():
            by_gpu[said.job, gpu].append((now, said, told))
    for looks in by_gpu.values():
        found.update(_of_gpu(looks))
    grouped = [
        Row(**{**asdict(one), "gpus": gpus}) for one, gpus in sorted(found.items(), key=repr)
    ]
    return [*grouped, *_due(judge, truth), *_given(judge, truth)]


def _of_gpu(looks: Sequence[_One]) -> Iterator[Row]:
    for right, run in groupby(looks, key=lambda one: one[1].right):
        them = list(run)
        if right in _IDLE and len(them) >= _LEAST_LOOKS:
            yield _span(_IDLE[right], them)
    for blamed, run in groupby(looks, key=lambda one: one[2] in _BLAMING):
        if blamed:
            them = list(run)
            said = them[0][1]
            right_so = all(one.right in _MAY_BLAME for _, one, _ in them)
            wrong = next((one for _, one, _ in them if one.right not in _MAY_BLAME), said)
            yield Row(
                sort="blamed",
                job=said.job,
                name=wrong.name,
                why=wrong.why.value if wrong.why else "",
                said=_most(them),
                right=right_so,
            )
    if not any(one.right in {Right.OWN, Right.EITHER} for _, one, _ in looks):
        strange = next((one for _, one, _ in looks if one.right is Right.EXCUSED), looks[0][1])
        blamed = any(told in _BLAMING and one.right is not Right.EDGE for _, one, told in looks)
        yield Row(
            sort="alike", job=strange.job, name=strange.name, why="", said="", right=not blamed
        )


def _span(sort: str, them: Sequence[_One]) -> Row:
    first = them[0]
    told = [(now, said) for now, _, said in them if (said in _BLAMING) == (sort == "own") and said]
    return Row(
        sort=sort,
        job=first[1].job,
        name=first[1].name,
        why=first[1].why.value if first[1].why else "",
        said=_most(them),
        right=bool(told) if sort == "own" else not any(said in _BLAMING for *_, said in them),
        seconds=(told[0][0] - first[0]).total_seconds() if told and sort == "own" else None,
    )


def _most(them: Sequence[_One]) -> str:
    """Return what was reported most often in the span; empty only where nothing ever was."""
    counted = Counter(told for *_, told in them if told)
    return counted.most_common(1)[0][0] if counted else ""


def _due(judge: IdleJudge, truth: Truth) -> Iterator[Row]:
    """Yield notices that should have been sent, by truth alone."""
    start, end = truth.seconds[0], truth.seconds[-1]
    given: dict[tuple[int, str], Mail] = {(one.job, one.stage): one for one in judge.mails}
    for stage, after in FOR_JOBS.stages():
        since: dict[int, float] = {}
        done: set[int] = set()
        for at in range(int(start + after.total_seconds()), int(end), 60):
            clear = _clear(truth, at, after.total_seconds())
            since = {job: since.get(job, float(at)) for job in clear if job not in done}
            for job, first in since.items():
                if not _before_reached(given, job, stage, after, judge.start_of(at)):
                    since[job] = float(at)
                elif at - first >= _HEARD_WITHIN.total_seconds():
                    done.add(job)
                    mail = given.get((job, stage))
                    heard = mail is not None and (mail.at - judge.start_of(at)) <= timedelta(0)
                    late = (
                        None if mail is None else (mail.at - judge.start_of(first)).total_seconds()
                    )
                    name, why = clear[job]
                    yield Row(
                        sort="due",
                        job=job,
                        name=name,
                        why=why,
                        said=stage,
                        right=heard,
                        seconds=None if late is None else max(late, 0.0),
                    )


def _before_reached(
    given: dict[tuple[int, str], Mail], job: int, stage: str, after: timedelta, now: datetime
) -> bool:
    """Return whether the notice of the stage before was sent long enough ago."""
    stages = list(FOR_JOBS.stages())
    place = [name for name, _ in stages].index(stage)
    if place == 0:
        return True
    name, earlier = stages[place - 1]
    mail = given.get((job, name))
    return mail is not None and now - mail.at >= after - earlier


def _clear(truth: Truth, at: float, span: float) -> dict[int, tuple[str, str]]:
    """Return jobs whose holder clearly should be notified of idle GPUs: scene and reason by job."""
    by_job: dict[int, list[GpuTruth]] = defaultdict(list)
    for said in truth.at(at, span).values():
        by_job[said.job].append(said)
    found = {}
    for job, them in by_job.items():
        own = [one for one in them if one.right is Right.OWN]
        doubt = any(one.right in {Right.EXCUSED, Right.EITHER} for one in them)
        if not own or doubt or _interactive(truth, job):
            continue
        if truth.used_share(job, at) < FOR_JOBS.busy_share_exempt - _SHARE_EDGE:
            why = own[0].why
            found[job] = (own[0].name, why.value if why else "")
    return found


def _given(judge: IdleJudge, truth: Truth) -> Iterator[Row]:
    """Yield notices that were sent, and whether they should have been."""
    stages = dict(FOR_JOBS.stages())
    for mail in judge.mails:
        at = judge.seconds_of(mail.at)
        of_gpus = truth.at(at, stages[mail.stage].total_seconds())
        them = [of_gpus.get(gpu) for gpu in mail.gpus]
        wrong = [one for one in them if one is None or one.right not in _MAY_BLAME]
        # Nobody can know how much a GPU was used whose every counter reads 0.
        told = any(one is not None and one.right is not Right.EDGE for one in them)
        busy = told and truth.used_share(mail.job, at) > FOR_JOBS.busy_share_exempt + _SHARE_EDGE
        exempt = _interactive(truth, mail.job) or busy
        shown = (wrong or them)[0]
        why = shown.why.value if shown is not None and shown.why else ""
        yield Row(
            sort="given",
            job=mail.job,
            name=(shown.name if shown else "its job was over") + (", exempt" if exempt else ""),
            why=why,
            said=f"{mail.stage}: {mail.why}",
            right=not wrong and not exempt,
            gpus=len(mail.gpus),
        )


def _interactive(truth: Truth, job: int) -> bool:
    """Return whether the default policy exempts the job: a person may sit in front of it."""
    return truth.plan.jobs[job].workload.key == "notebook"
