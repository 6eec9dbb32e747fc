"""One job's page, as trees of elements."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from accounting.cost.money import Prices
from accounting.jobs.bound import UNSAID
from accounting.jobs.measured import Ports
from accounting.jobs.reliability import best_interval, mttf
from gpuvigil.clock import duration
from gpuvigil.clock import moment as time_of
from gpuvigil.model import SIMULATED_CLUSTER, Incident, Inventory, Subject
from gpuvigil.numbers_in_words import counted
from gpuvigil.web import page_links

from ..device.ports import bytes_per_second
from ..layout.tree import Node, each, el, wide
from ..lists.job_losses import Reliability, advice
from ..lists.jobs import JobNow
from ..lists.not_reporting import not_reporting
from ..lists.one_job_now import checkpoint_words, has_incidents, where_and_since
from .job_query import Ending
from .ranks import Line, Ranks, ordered

MOST_RANKS, MOST_NODES, MOST_INCIDENTS, MOST_CLUES = 16, 12, 12, 20
_DASH = "–"
_SIMULATED = el("span", "SIMULATED: no real hardware", class_="badge simulated")
_HOUR = timedelta(hours=1)


def head(job: JobNow, now: datetime) -> Node:
    """Return the head: the job, its user, its GPUs and its start; then what holds it up or bounds it."""
    up, slow, found = job.holds_up, job.slowed_by, job.decision
    worst = up or slow
    kind = worst.severity.value if worst is not None else "good" if job.is_known else ""
    return el(
        "section",
        el(
            "h2",
            str(job.holder),
            el("small", job.name or ""),
            *([" ", _SIMULATED] if job.cluster == SIMULATED_CLUSTER else []),
        ),
        el("p", *_joined(_facts(job, now)), class_="sub"),
        _why("Held up by ", up)
        if up
        else _why("Slowed down: ", slow)
        if slow
        else el("p", *_calm(job)),
        el("p", el("b", "Bound by: "), _bound(job), class_="impact") if found else None,
        class_=f"story-head {kind}".strip(),
        key="head",
    )


def _joined(facts: Iterable[Node]) -> Iterable[Node]:
    for place, fact in enumerate(facts):
        yield from (" · ", fact) if place else (fact,)


def _facts(job: JobNow, now: datetime) -> Iterable[Node]:
    yield "running"
    if job.user:
        yield el("a", job.user, href=page_links.user_page(job.user))
    if job.account:
        yield el("a", f"team {job.account}", href=page_links.team_page(job.account))
    yield f"{counted(len(job.gpus), 'GPU')} on {counted(len(job.nodes), 'node')}"
    if job.partition:
        yield f"partition {job.partition}"
    least = "at the latest " if job.began_before else ""
    lasts = duration(max(now - job.started_at, timedelta()))
    yield f"since {least}{time_of(job.started_at)}, for {lasts}"
    if job.record is not None and job.record.limit_seconds:
        yield f"limit {time_of(job.started_at + timedelta(seconds=job.record.limit_seconds))}"


def _why(what: str, one: Incident) -> Node:
    return el(
        "p",
        el("b", what),
        _link(one),
        f"{where_and_since(one)}. ",
        *([el("b", "Do now: "), one.action] if one.action else []),
        class_="action",
    )


def _calm(job: JobNow) -> Sequence[Node]:
    silent = job.unheard
    if silent is not None:
        said = f"{where_and_since(silent)}: whether it runs there is not known."
        return _link(silent), said
    if job.not_reporting:
        return (not_reporting(job),)
    if not job.incidents:
        return ("No incident holds it up.",)
    worst = job.incidents[0]
    said = f"No incident holds it up. {has_incidents(job)}"
    return said, _link(worst), f"{where_and_since(worst)}."


def _link(one: Incident) -> Node:
    return el("a", one.title, href=page_links.incident_page(one.id))


def _bound(job: JobNow) -> str:
    assert job.decision is not None
    return f"{job.decision.bound.value}: {job.decision.text}."


def tiles(job: JobNow, reliability: Reliability | None, prices: Prices, now: datetime) -> Node:
    """Return the most important numbers, each with its reference."""
    return el(
        "section", el("dl", *_tiles(job, reliability, prices, now), class_="tiles"), key="tiles"
    )


def _tiles(
    job: JobNow, reliability: Reliability | None, prices: Prices, now: datetime
) -> Iterable[Node]:
    found, did = job.decision, job.activity
    if found is not None:
        sure = "" if found.bound in UNSAID else f"confidence {found.confidence:.2f}"
        yield _tile("Bound by", found.bound.value, sure)
    pace = job.pace_percent
    beside = "too little measured to compare it" if pace is None else "of the hour before"
    yield _tile("Pace", _DASH if pace is None else f"{pace:.0f} %", beside)
    steps = None if did is None else did.steps
    if steps is not None:
        # A job that is held up makes no step now, and its ranks go on reporting their last one.
        name = "Step" if job.holds_up is None else "Last step"
        beside = f"reported by {counted(steps.ranks, 'rank')}"
        yield _tile(name, f"{steps.seconds:.2f} s", beside)
    sm = None if did is None else did.sm_percent
    used = None if did is None else did.utilization_percent
    beside = "" if used is None else f"a kernel runs {used:.0f} % of the time"
    yield _tile("SM activity", _DASH if sm is None else f"{sm:.0f} %", beside)
    hours = len(job.gpus) * (max(now - job.started_at, timedelta()) / _HOUR)
    if job.cost is not None:
        yield _tile("Cost so far", prices.formatted(job.cost), f"{hours:,.1f} GPU-hours")
    else:
        yield _tile("GPU-hours so far", f"{hours:,.1f}", "no price is set" if not prices else "")
    yield _at_risk(job, hours)
    if reliability is not None:
        until = mttf(reliability.rate, len(job.nodes))
        on_nodes = f"on {counted(len(job.nodes), 'node')}"
        said, beside = (
            (_DASH, _why_no_rate(reliability)) if until is None else (duration(until), on_nodes)
        )
        yield _tile("Mean time to failure", said, beside)


def _why_no_rate(of: Reliability) -> str:
    return "no failure is known" if of.rate.known else "the cluster was not watched long enough"


def _tile(name: str, value: str, beside: str) -> Node:
    return el(
        "div",
        el("dt", name),
        el("dd", value),
        el("dd", beside, class_="beside") if beside else None,
    )


def _at_risk(job: JobNow, hours: float) -> Node:
    age, risk = job.checkpoint_age, job.at_risk_gpu_hours
    if age is None or risk is None:
        # Its start is not known, so the hours that were seen are no upper limit.
        most = "all its work" if job.began_before else f"≤ {hours:,.1f} GPU-hours"
        return _tile("Work at risk", most, "no checkpoint is known")
    return _tile("Work at risk", f"{risk:,.1f} GPU-hours", f"last checkpoint {duration(age)} ago")


def ranks(job: JobNow, inventories: Mapping[Subject, Inventory], now: datetime) -> Node | None:
    """Return the job's GPUs, those that stand apart first; None if none is measured."""
    if not job.ranks:
        return None
    told = _worst_incidents(job)
    found, places = ordered(job.ranks, told), _Places(job, inventories)
    said = (
        f"{counted(found.apart, 'outlier')} of {len(found.lines):,}"
        if found.apart
        else "no outliers"
    )
    numbered = any(line.rank.number is not None for line in found.lines)
    names = [*(["Rank"] if numbered else []), "GPU", "Node"]
    more = len(found.lines) - MOST_RANKS
    head = [el("th", name, scope="col") for name in names]
    head += [
        el("th", it.title, scope="col", class_="number", title=it.said or None)
        for it in found.measures
    ]
    head += [el("th", "Incident", scope="col")] if told else []
    lines = [
        places.line(it, found, now, told, numbered=numbered) for it in found.lines[:MOST_RANKS]
    ]
    return el(
        "section",
        el("h2", "Ranks", el("small", f"last 5 minutes, {said}")),
        wide(
            el("table", el("thead", el("tr", *head)), el("tbody", *lines, _middle(found, names))),
            "Ranks",
        ),
        el("p", f"{more:,} more, nearer the median", class_="sub") if more > 0 else None,
        _meant(found),
        key="ranks",
    )


def _meant(found: Ranks) -> Node | None:
    """Return an explanation of the columns whose titles are not enough; None without any."""
    said = [f"{it.title}: {it.said}." for it in found.measures if it.said]
    return el("p", " ".join(said), class_="sub") if said else None


def _middle(found: Ranks, names: Sequence[str]) -> Node:
    cells = (
        el("td", measure.show(value), class_="number")
        for measure, value in zip(found.measures, found.middle, strict=True)
    )
    return el("tr", el("th", "Median", scope="row", colspan=str(len(names))), *cells, key="median")


def _worst_incidents(job: JobNow) -> Mapping[str, Incident]:
    """Return the worst incident of each GPU that has an incident of its own."""
    own = {rank.key for rank in job.ranks}
    found: dict[str, Incident] = {}
    for one in job.incidents:
        for key in (one.subject.key, *one.members):
            if key in own:
                found.setdefault(key, one)
    return found


def _incident_cell(one: Incident | None) -> Node:
    if one is None:
        return el("td", _DASH)
    return el("td", el("a", one.title, href=page_links.incident_page(one.id)))


class _Places:
    """The names of a job's GPUs for people."""

    def __init__(self, job: JobNow, inventories: Mapping[Subject, Inventory]) -> None:
        self._subjects = {subject.key: subject for subject in job.gpus}
        self._indices = {
            (node, gpu.uuid): gpu.index
            for node in {it.of_node() for it in job.gpus}
            if node in inventories
            for gpu in inventories[node].gpus
        }

    def line(
        self,
        one: Line,
        found: Ranks,
        now: datetime,
        incidents: Mapping[str, Incident],
        *,
        numbered: bool,
    ) -> Node:
        subject = self._subjects[one.rank.key]
        index = self._indices.get((subject.of_node(), subject.gpu or ""))
        hour_ago = now - _HOUR
        number = _DASH if one.rank.number is None else f"rank {one.rank.number}"
        gpu = subject.gpu or "" if index is None else f"GPU {index}"
        return el(
            "tr",
            el("td", number, class_="whole") if numbered else None,
            el(
                "td",
                el("a", gpu, href=page_links.subject_page(subject, hour_ago, now)),
                class_=None if index is None else "whole",
            ),
            el(
                "td",
                el(
                    "a",
                    subject.node,
                    href=page_links.subject_page(subject.of_node(), hour_ago, now),
                ),
                class_="whole",
            ),
            *(
                el(
                    "td",
                    _DASH if (value := measure.value(one.rank)) is None else measure.show(value),
                    class_="number apart" if measure.key in one.apart else "number",
                )
                for measure in found.measures
            ),
            _incident_cell(incidents.get(one.rank.key)) if incidents else None,
            key=one.rank.key,
        )


def network(job: JobNow, now: datetime) -> Node | None:
    """Return the load of its nodes' ports, the busiest first; None for a job on one node."""
    if len(job.nodes) < 2 or not job.ports:
        return None
    ordered_nodes = sorted(job.ports.items(), key=lambda it: -_strain(it[1]))
    lines = (_node(job, name, ports, now) for name, ports in ordered_nodes[:MOST_NODES])
    more = len(ordered_nodes) - MOST_NODES
    names = ("Moved", "Load", "Wait")
    head = [el("th", "Node", scope="col")]
    head += [el("th", name, scope="col", class_="number") for name in names]
    return el(
        "section",
        el("h2", "Network", el("small", "last 5 minutes, ports its nodes talk through")),
        wide(el("table", el("thead", el("tr", *head)), el("tbody", *lines)), "Network"),
        el("p", counted(more, "calmer node"), class_="sub") if more > 0 else None,
        key="network",
    )


def _strain(ports: Ports) -> float:
    return (ports.fabric_wait_percent or 0.0) + 100.0 * (ports.fabric_share or 0.0)


def _node(job: JobNow, name: str, ports: Ports, now: datetime) -> Node:
    subject = Subject(cluster=job.cluster, node=name)
    cells = (
        _shown(ports.fabric_bytes_per_second, bytes_per_second),
        _shown(ports.fabric_share, lambda it: f"{100.0 * it:.0f} %"),
        _shown(ports.fabric_wait_percent, lambda it: f"{it:.0f} % of the time"),
    )
    href = page_links.subject_page(subject, now - _HOUR, now)
    return el(
        "tr",
        el("td", el("a", name, href=href), class_="whole"),
        *(el("td", text, class_="number") for text in cells),
        key=name,
    )


def _shown(value: float | None, show: Callable[[float], str]) -> str:
    return _DASH if value is None else show(value)


def to_do(job: JobNow) -> Node | None:
    """Return what the operator and the job's owner can do; None if there is nothing."""
    up, found = job.holds_up or job.slowed_by, job.decision
    said = [
        el("li", el("b", "Operator: "), up.action) if up is not None and up.action else None,
        el("li", el("b", "Job's owner: "), job.advice) if job.advice else None,
        el("li", "Not measured: ", ", ".join(found.missing), ".")
        if found and found.missing
        else None,
    ]
    shown = each(said)
    return el("section", el("h2", "What to do"), el("ul", *shown), key="to-do") if shown else None


def checkpoints(
    job: JobNow, reliability: Reliability | None, written: Sequence[datetime], now: datetime
) -> Node:
    """Return the age of the last checkpoint, the interval, and the best interval."""
    rows = [("Last", checkpoint_words(job, now))]
    if len(written) > 1:
        every = (written[-1] - written[0]) / (len(written) - 1)
        rows.append(
            ("Every", f"{duration(every)}, {counted(len(written), 'checkpoint')} in the window")
        )
    if reliability is not None:
        best = best_interval(reliability.rate, len(job.nodes))
        said = advice(reliability, len(job.nodes))
        rows.append(("Best", said if best else _no_rate(reliability)))
    pairs = (node for name, text in rows for node in (el("dt", name), el("dd", text)))
    return el(
        "section", el("h2", "Checkpoints"), el("dl", *pairs, class_="plain"), key="checkpoints"
    )


def _no_rate(found: Reliability) -> str:
    if not found.rate.known:
        return "Not known: it takes a node-week of data to know a failure rate."
    return f"No failure of a node was seen in {found.rate.node_days:,.0f} node-days."


def incidents(found: Sequence[Incident], holding: Iterable[str], now: datetime) -> Node:
    """Return the incidents on its nodes since it began."""
    stops = set(holding)
    rows = (
        el(
            "li",
            el("span", one.severity.value, class_=f"badge {one.severity.value}"),
            el("a", one.title, href=page_links.incident_page(one.id)),
            el("div", f"{one.label or one.subject.node}, {_lasted(one, now)}", class_="sub"),
            el("div", "holds it up", class_="flag") if one.id in stops else None,
            key=one.id,
        )
        for one in found[:MOST_INCIDENTS]
    )
    more = len(found) - MOST_INCIDENTS
    body = el("ul", *rows, class_="others") if found else el("p", "None.", class_="empty")
    return el(
        "section",
        el("h2", "Incidents on its nodes", el("small", "since it began")),
        body,
        el("p", f"{more:,} older", class_="sub") if more > 0 else None,
        key="incidents",
    )


def _lasted(one: Incident, now: datetime) -> str:
    since = f"since {time_of(one.since)}"
    if one.resolved_at is None:
        return f"{since}, for {duration(now - one.since)}"
    return f"{since}, lasted {duration(one.resolved_at - one.since)}"


def ended(found: Ending) -> Sequence[Node]:
    """Return how and why the job ended, and what happened around its end."""
    told, end = found.known, found.known.ending
    if end.ended_at is None:
        title = f"{told.holder} has not ended: {found.found.text}"
    else:
        title = f"{told.holder} ended: {found.found.why.value}"
    facts: list[tuple[str, Sequence[Node | None]]] = [
        ("Why", [found.found.text]),
        ("State", [end.state]),
        ("Exit code", [end.exit_code]),
        ("Began", [None if end.started_at is None else time_of(end.started_at)]),
        ("Ended", [None if end.ended_at is None else time_of(end.ended_at)]),
        ("Nodes", _nodes(told.nodes)),
        ("GPUs", [str(len(end.gpus)) if end.gpus else None]),
    ]
    pairs = (it for name, said in facts if any(said) for it in (el("dt", name), el("dd", *said)))
    simulated = told.cluster == SIMULATED_CLUSTER
    return each(
        (
            el(
                "section",
                el("h2", title, *([" ", _SIMULATED] if simulated else [])),
                el("dl", *pairs, class_="plain"),
                class_="story-head",
                key="ended",
            ),
            _clues(found),
        )
    )


def _nodes(found: Sequence[Subject]) -> Sequence[Node]:
    """Return links to the first nodes, and how many more there are."""
    shown: list[Node] = []
    for node in found[:MOST_NODES]:
        shown += [", ", _node_link(node)] if shown else [_node_link(node)]
    more = len(found) - MOST_NODES
    return [*shown, f" and {more:,} more"] if more > 0 else shown


def _clues(found: Ending) -> Node | None:
    if found.known.ending.ended_at is None:
        return None
    rows = [
        el(
            "tr",
            el("td", time_of(one.at)),
            el("td", *_where(one.where)),
            el("td", one.what),
            el("td", one.speaks_for.value if one.speaks_for else _DASH),
        )
        for one in found.found.clues[:MOST_CLUES]
    ]
    names = ("At", "Where", "What", "Points to")
    return el(
        "section",
        el("h2", "Around its end", el("small", "10 minutes before to 5 after")),
        wide(
            el(
                "table",
                el("thead", el("tr", *(el("th", name, scope="col") for name in names))),
                el("tbody", *rows),
            ),
            "Around its end",
        )
        if rows
        else el("p", "Its nodes reported nothing.", class_="empty"),
        key="clues",
    )


def _where(key: str) -> Sequence[Node]:
    """Return a link to the node, then the part of the node."""
    subject = Subject.parse(key)
    rest = " ".join(filter(None, (subject.gpu, subject.device, subject.port)))
    return (_node_link(subject), f" {rest}") if rest else (_node_link(subject),)


def _node_link(node: Subject) -> Node:
    return el("a", node.node, href=page_links.node_page(node.cluster, node.node))


def nothing(text: str) -> Node:
    """Return a text in place of a job."""
    return el("section", el("p", text, class_="empty", role="status"), key="nothing")
