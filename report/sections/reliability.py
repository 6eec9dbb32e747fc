"""Hardware reliability: failures by class, time between them, repeat offenders, parts away."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta

from accounting.hardware.repeat_offenders import SPAN, failures, offenders
from accounting.hardware.returns import newest
from accounting.jobs.losses import LEAST_RESTARTS, restart, restart_by_size
from accounting.jobs.reliability import (
    LEAST_NODE_DAYS,
    RESTART_SECONDS,
    FailureRate,
    Size,
    failure_rate,
    mttf,
    mttr,
    sizes,
)
from gpuvigil.clock import duration
from gpuvigil.model import Incident, RmaState
from gpuvigil.numbers_in_words import counted

from ..inputs.facts import Facts
from ..model.formatting import at
from ..model.sheet import Cell, Column, Kind, Sheet, exact
from .act import is_network, lasted
from .hardware import fault_title, gpus_of, is_hardware
from .hit import HeldGpus, behind, held_gpus, hit
from .waste import Wasted

MOST = 8
_SIZES = (1, 8, 32, 128, 512)


def hardware_sheets(facts: Facts, rows: Sequence[Wasted]) -> tuple[Sheet, ...]:
    """Return the tables that have any rows."""
    held = held_gpus(rows)
    found = (
        _classes(facts, held),
        _sizes(facts),
        _offenders(facts),
        _returns(facts),
        _links(facts, held),
    )
    return tuple(one for one in found if one is not None and one.rows)


def _classes(facts: Facts, held: HeldGpus) -> Sheet:
    """Return a row per fault, the one that hit most GPU-hours first."""
    groups: defaultdict[str, list[Incident]] = defaultdict(list)
    for one in facts.incidents:
        if is_hardware(one):
            groups[fault_title(one)].append(one)
    rows = [_class(title, them, facts, held) for title, them in groups.items()]
    rows.sort(key=lambda row: (-float(str(row[3])), -float(str(row[1])), str(row[0])))
    columns = (
        Column(key="fault", label="Fault"),
        Column(key="incidents", label="Incidents", kind=Kind.COUNT),
        Column(key="gpus", label="GPUs", kind=Kind.COUNT),
        Column(key="gpu_hours", label="GPU-h hit", kind=Kind.HOURS),
        Column(key="hours", label="Hours open", kind=Kind.LASTING),
        Column(key="open", label="Open at the end", kind=Kind.COUNT),
    )
    return Sheet(
        key="faults",
        heading="Hardware incidents",
        caption="By fault; GPU-hours hit are those of the GPUs that could not do their work meanwhile",
        columns=columns,
        rows=tuple(rows),
    )


def _class(title: str, them: Sequence[Incident], facts: Facts, held: HeldGpus) -> tuple[Cell, ...]:
    start, end = facts.usage.start, facts.usage.end
    return (
        title,
        float(len(them)),
        float(len({gpu for one in them for gpu in gpus_of(one)})),
        exact(hit(them, held, (start, end))),
        round(sum(lasted(one, start, end) for one in them), 1),
        float(sum(one.resolved_at is None or one.resolved_at > end for one in them)),
    )


def rate_of(facts: Facts) -> FailureRate:
    """Return the rate of failures that end jobs, over the 30 days before the end."""
    end = facts.usage.end
    return failure_rate(facts.lately, facts.cluster, facts.usage.nodes, (end - SPAN, end))


def _sizes(facts: Facts) -> Sheet | None:
    """Return what to expect for jobs of various sizes, from the failures of the last 30 days."""
    rate = rate_of(facts)
    if not facts.usage.nodes or rate.failures == 0:
        return None
    counts = [number for number in _SIZES if number <= facts.usage.nodes] or [1]
    again = restart(facts.ran_again) or timedelta(seconds=RESTART_SECONDS)
    found = sizes(rate, counts, again.total_seconds(), restart_by_size(facts.ran_again, counts))
    rows = [
        (
            float(one.nodes),
            None if one.mttf is None else round(one.mttf / timedelta(hours=1), 1),
            None if one.interval is None else _minutes(one.interval),
            None if one.mttr is None else _minutes(one.mttr),
            None if one.ettr is None else round(100 * one.ettr, 1),
        )
        for one in found
    ]
    columns = (
        Column(key="nodes", label="Nodes of a job", kind=Kind.COUNT),
        Column(key="mttf", label="A failure ends it after (MTTF)", kind=Kind.LASTING),
        Column(key="checkpoint_minutes", label="Checkpoint every, min", kind=Kind.COUNT),
        Column(key="mttr_minutes", label="Runs again after (MTTR), min", kind=Kind.COUNT),
        Column(key="ettr", label="Share of time it makes progress (ETTR)", kind=Kind.PERCENT),
    )
    return Sheet(
        key="sizes",
        heading="What a job has to expect",
        caption=_failures_said(facts, rate) + _restarts_said(facts, found),
        columns=columns,
        rows=tuple(rows),
    )


def _minutes(time: timedelta) -> float:
    return round(time / timedelta(minutes=1))


def _failures_said(facts: Facts, rate: FailureRate) -> str:
    repair = mttr(facts.lately, facts.cluster)
    cluster = mttf(rate, facts.usage.nodes)
    said = f"Last {SPAN.days} days: {counted(rate.failures, 'failure')} that ended jobs in {rate.node_days:,.0f} node-days"
    if cluster is not None:
        said += f", one in {duration(cluster)} somewhere in the cluster"
    if repair is not None:
        said += f"; half of them were over within {duration(repair)}"
    if not rate.known:
        said += f". Fewer than {LEAST_NODE_DAYS:g} node-days are too few for a rate"
    return said


def _restarts_said(facts: Facts, found: Sequence[Size]) -> str:
    """Say what ETTR is computed with where too few jobs of a size ran again."""
    if all(one.mttr is not None for one in found):
        return ""
    again = restart(facts.ran_again)
    if again is None:
        usual = duration(timedelta(seconds=RESTART_SECONDS))
        return f". MTTR was not measured, as no job ran again; ETTR assumes {usual}"
    return (
        f". MTTR was not measured where fewer than {LEAST_RESTARTS} jobs ran again;"
        f" ETTR assumes {duration(again)} there, the median of all {len(facts.ran_again):,} that did"
    )


def _offenders(facts: Facts) -> Sheet:
    """Return nodes, slots and GPUs that failed more than once in 30 days."""
    found = offenders(failures(facts.lately), facts.usage.end)
    again = [one for one in found if len(one.failures) > 1][:MOST]
    columns = (
        Column(key="part", label="Part"),
        Column(key="where", label="Where"),
        Column(key="failures", label="Failures", kind=Kind.COUNT),
        Column(key="last", label="Last (UTC)"),
        Column(key="faults", label="What failed"),
        Column(key="lemon", label="Verdict"),
    )
    rows = tuple(
        (
            one.part.value,
            one.name if one.name == one.node else f"{one.node}, {one.name}",
            float(len(one.failures)),
            at(one.last_at),
            ", ".join(sorted({_title(facts, it.incident, it.fault) for it in one.failures})),
            "take it out" if one.is_lemon else "watch",
        )
        for one in again
    )
    return Sheet(
        key="offenders",
        heading="Failed again",
        caption=f"More than once in {SPAN.days} days, the worst first",
        columns=columns,
        rows=rows,
    )


def _title(facts: Facts, incident: str, fault: str) -> str:
    found = next((one for one in facts.lately if one.id == incident), None)
    return fault if found is None else fault_title(found)


def _returns(facts: Facts) -> Sheet:
    """Return open repairs and returns to the manufacturer, the oldest first."""
    steps = newest(one for one in facts.returns if one.at < facts.usage.end)
    by_id = {one.id: one for one in facts.lately}
    open_ = [one for one in steps.values() if one.state is not RmaState.REPLACED]
    rows = []
    for one in sorted(open_, key=lambda it: it.at)[:MOST]:
        incident = by_id.get(one.incident)
        rows.append(
            (
                one.subject.node,
                one.serial or one.slot or one.subject.key,
                one.state.value,
                at(one.at),
                "" if incident is None else incident.title,
                one.note,
            )
        )
    columns = (
        Column(key="node", label="Node"),
        Column(key="part", label="Serial number or slot"),
        Column(key="state", label="How far"),
        Column(key="since", label="Since (UTC)"),
        Column(key="fault", label="What failed"),
        Column(key="note", label="Note"),
    )
    return Sheet(
        key="returns",
        heading="Repairs and returns",
        caption="What is not back yet, the oldest first",
        columns=columns,
        rows=tuple(rows),
    )


def _links(facts: Facts, held: HeldGpus) -> Sheet:
    """Return the worst links and switches, and the jobs behind them."""
    start, end = facts.usage.start, facts.usage.end
    places: defaultdict[str, list[Incident]] = defaultdict(list)
    for one in facts.incidents:
        if is_network(one) and is_hardware(one):
            places[one.subject.key].append(one)
    rows: list[tuple[Cell, ...]] = []
    for place, them in places.items():
        name = them[-1].label or place
        holders = sorted({name for one in them for name in one.impact.holders})
        more = f" and {len(holders) - 3} more" if len(holders) > 3 else ""
        rows.append(
            (
                name,
                ", ".join(sorted({fault_title(one) for one in them})),
                float(len(them)),
                round(sum(lasted(one, start, end) for one in them), 1),
                (0.0, exact(behind(them, held, (start, end)))),
                ", ".join(holders[:3]) + more or "none",
            )
        )
    rows.sort(key=lambda row: (-row[4][1], str(row[0])))  # type: ignore[index,operator]
    columns = (
        Column(key="link", label="Link or switch"),
        Column(key="fault", label="What it had"),
        Column(key="incidents", label="Times", kind=Kind.COUNT),
        Column(key="hours", label="Stood for", kind=Kind.LASTING),
        Column(key="gpu_hours", label="GPU-h behind it", kind=Kind.HOURS),
        Column(key="jobs", label="Jobs behind it"),
    )
    return Sheet(
        key="network",
        heading="Network",
        caption="The worst first; the jobs behind a link may have waited for it or not",
        columns=columns,
        rows=tuple(rows[:MOST]),
    )
