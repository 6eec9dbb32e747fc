"""The whole pipeline as one immutable value, with a verdict on whether to trust the pages; pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum

from gpuvigil import __version__
from gpuvigil.clock import duration, moment
from gpuvigil.model import with_kind
from gpuvigil.numbers_in_words import counted

from ..model.cluster import ClusterView
from ..model.service_start import still_starting
from .clusters import CLOCK_LIMIT_SECONDS, ClusterHealth, NodeHealth, clusters
from .hub_queries import Sources
from .services import HubHealth, Outbox, Pulse, hub_health, outboxes, pulse

COVERAGE_LIMIT_PERCENT = 95.0
LAG_LIMIT_SECONDS = 60.0
SPOOL_LIMIT_SECONDS = 60.0
QUEUE_LIMIT = 0.5
DEAD_COUNTS_FOR = timedelta(hours=24)
# Used if the hub does not report how long it keeps numbers.
DAMAGE_COUNTS_FOR_DAYS = 14.0
NAMED = 3


class Level(IntEnum):
    """How much a problem affects the trust in the pages."""

    WRONG = 0  # what the pages say, or do not say, may be untrue
    CARE = 1  # the pages are true as far as they go, but somebody should look


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong, and what to do about it."""

    level: Level
    text: str
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineView:
    """Everything that the page shows."""

    now: datetime
    problems: tuple[Problem, ...]  # worst first
    clusters: tuple[ClusterHealth, ...]
    hub: HubHealth
    analyzer: Pulse | None
    alerts: Pulse | None
    outboxes: tuple[Outbox, ...]

    @property
    def verdict(self) -> str:
        """Whether the pages can be trusted, in one line with the worst problem, if any."""
        if self.problems:
            first = self.problems[0]
            return f"{_TRUST[first.level]}: {first.text}"
        if not any(cluster.nodes for cluster in self.clusters):
            return "Nothing is known yet: no collector has reported."
        return "All is well: the pages can be trusted."


_TRUST = {Level.WRONG: "Pages may be wrong", Level.CARE: "Pages can be trusted, with care"}


def pipeline(sources: Sources, now: datetime, shown: Iterable[ClusterView] = ()) -> PipelineView:
    """Return the view of what the hub reports; `now` is its clock, which goes on if it is silent.

    `shown`: the clusters as on all other pages, which decide which nodes are silent.
    """
    found = clusters(sources, shown)
    hub = hub_health(sources.status, sources.elsewhere)
    analyzer, alerts = (pulse(sources.pulses, name, now) for name in ("analyzer", "alerts"))
    boxes = outboxes(sources.notices, alerts, now)
    problems = [
        *_services(analyzer, alerts, hub.started_at, now),
        *_channels(boxes, alerts, now),
        *(problem for cluster in found for problem in _collectors(cluster, now)),
        *_store(hub, now),
        *_records(hub),
        *_hub(hub),
        *_versions(found, hub, (analyzer, alerts)),
    ]
    return PipelineView(
        now=now,
        problems=tuple(sorted(problems, key=lambda problem: problem.level)),
        clusters=found,
        hub=hub,
        analyzer=analyzer,
        alerts=alerts,
        outboxes=boxes,
    )


def _services(
    analyzer: Pulse | None, alerts: Pulse | None, hub_since: datetime | None, now: datetime
) -> Iterable[Problem]:
    for service, found, lost, command in (
        ("analyzer", analyzer, "faults go undetected", "gpuvigil analyze"),
        ("alerts", alerts, "nobody is notified of incidents", "gpuvigil alert"),
    ):
        early = still_starting(hub_since, service, now, None if found is None else found.at)
        if found is None or (found.silent and early):
            text = early or f"no {service} service has ever reported"
            action = "Wait a minute." if early else f"Start `{command}`."
            text += f": {lost} until then." if early else f": {lost}."
            yield Problem(level=Level.WRONG, text=text, action=action)
        elif found.silent:
            since = f"has been silent for {duration(now - found.at)}, since {moment(found.at)}"
            text = f"the {service} service {since}: {lost}."
            yield Problem(
                level=Level.WRONG,
                text=text,
                action=f"Check that `{command}` runs, and read its log.",
            )
    if analyzer is None or analyzer.silent:
        return
    failing = analyzer.body.get("failing")
    if isinstance(failing, Mapping) and failing:
        text = f"detectors fail, so their faults go unseen: {', '.join(sorted(failing))}."
        yield Problem(level=Level.WRONG, text=text, action="See the log of `gpuvigil analyze`.")
    tick, took = analyzer.number("tick_seconds"), analyzer.number("pass_seconds")
    if tick is not None and took is not None and took > tick:
        text = f"a pass of the analyzer takes {took:.1f} s and is due every {tick:g} s."
        yield Problem(level=Level.CARE, text=text, action="Raise `analyzer.tick_seconds`.")


def _channels(boxes: Sequence[Outbox], alerts: Pulse | None, now: datetime) -> Iterable[Problem]:
    if alerts is not None and not alerts.silent and alerts.body.get("channels") == []:
        text = "no channel is configured: incidents are on these pages only."
        yield Problem(
            level=Level.CARE,
            text=text,
            action="Add one: `[[alerts.webhooks]]` or `[[alerts.slack]]`.",
        )
    for box in boxes:
        error = f": {box.last_error}" if box.last_error else ""
        if box.failing:
            since = f" since {moment(box.failing_since)}" if box.failing_since else ""
            text = (
                f"channel {box.channel}: {counted(box.failing, 'message')} waiting{since}{error}."
            )
            yield Problem(level=Level.WRONG, text=text, action="Check its receiver.")
        if box.last_dead_at is not None and now - box.last_dead_at < DEAD_COUNTS_FOR:
            text = f"channel {box.channel}: {counted(box.dead, 'message')} given up{error}."
            action = "Read them on the incidents' pages; fix the channel's address or receiver."
            yield Problem(level=Level.WRONG, text=text, action=action)


def _collectors(cluster: ClusterHealth, now: datetime) -> Iterable[Problem]:
    where = with_kind("cluster", cluster.name)
    silent = cluster.silent
    if silent:
        named = _named(silent, lambda it: _ago(it, now))
        (have, they, them) = (
            ("is", "it is", "it") if len(silent) == 1 else ("are", "they are", "them")
        )
        text = f"{where}: {len(silent)} of {counted(len(cluster.nodes), 'node')} {have} silent: {named}."
        action = f"Check that {they} up and that `gpuvigil collect` runs on {them}."
        yield Problem(level=Level.WRONG, text=text, action=action)
    coverage = cluster.coverage_percent
    if coverage is not None and coverage < COVERAGE_LIMIT_PERCENT:
        text = f"{where}: {coverage:.1f} % of the expected numbers came in the last 15 minutes."
        action = "Missing spans show as gaps; look at the nodes with the lowest coverage below."
        yield Problem(level=Level.WRONG, text=text, action=action)
    yield from _late(cluster, where)
    yield from _lossy(cluster, where)


_SET_RIGHT = (
    "Correct them with NTP or chrony; until then the hub corrects the times of their numbers."
)


def _late(cluster: ClusterHealth, where: str) -> Iterable[Problem]:
    wrong = cluster.worst("offset_seconds", CLOCK_LIMIT_SECONDS)
    if wrong:
        named = _named(wrong, lambda it: f"{it.offset_seconds or 0:+.1f} s")
        text = f"{where}: {counted(len(wrong), 'clock')} more than 2 s off: {named}."
        yield Problem(level=Level.CARE, text=text, action=_SET_RIGHT)
    heard = {node.subject for node in cluster.nodes if node.heard}
    late = [n for n in cluster.worst("lag_seconds", LAG_LIMIT_SECONDS) if n.subject in heard]
    if late:
        named = _named(late, lambda it: _seconds(it.lag_seconds))
        text = f"{where}: {counted(len(late), 'node')} sending old data: {named}."
        yield Problem(
            level=Level.CARE,
            text=text,
            action="They are catching up; the age of their data is below.",
        )
    starved = [node for node in cluster.worst("sweep_seconds") if node.is_starved]
    if starved:
        named = _named(starved, _load)
        text = f"{where}: {counted(len(starved), 'collector')} with too little processor time: {named}."
        action = "Their numbers come late or not at all; see what else runs on these nodes."
        yield Problem(level=Level.CARE, text=text, action=action)
    waiting = cluster.worst("spool_oldest_seconds", SPOOL_LIMIT_SECONDS)
    if waiting:
        named = _named(waiting, lambda it: _seconds(it.spool_oldest_seconds))
        text = f"{where}: {counted(len(waiting), 'node')} with data waiting to be sent: {named}."
        action = "It is sent by itself; check the network to the hub if it does not shrink."
        yield Problem(level=Level.CARE, text=text, action=action)


def _lossy(cluster: ClusterHealth, where: str) -> Iterable[Problem]:
    full = [node for node in cluster.nodes if node.spool_writable == 0]
    if full:
        named = _named(
            full, lambda it: "" if it.spool_bytes is None else f"{it.spool_bytes:,} B wait"
        )
        text = f"{where}: {counted(len(full), 'spool')} on a disk that is full or fails: {named}."
        action = "Free space there: what waits for the hub is kept in memory, then dropped."
        yield Problem(level=Level.WRONG, text=text, action=action)
    dropped = cluster.worst("dropped_lately")
    if dropped:
        named = _named(dropped, lambda it: f"{it.dropped_lately:,}")
        text = f"{where}: batches of numbers were dropped in the last 15 minutes: {named}."
        yield Problem(level=Level.WRONG, text=text, action="Read the collector's log there.")
    hung = cluster.worst("driver_silent_seconds")
    if hung:
        named = _named(hung, lambda it: _seconds(it.driver_silent_seconds))
        text = f"{where}: the driver does not answer on {counted(len(hung), 'node')}: {named}."
        yield Problem(
            level=Level.CARE, text=text, action="It is an incident; follow its first action."
        )
    restarted = cluster.worst("restarts_lately")
    if restarted:
        named = _named(restarted, lambda it: f"{it.restarts_lately:,}")
        text = f"{where}: readers were replaced in the last 15 minutes: {named}."
        yield Problem(level=Level.CARE, text=text, action="Read the collector's log there.")


def _store(hub: HubHealth, now: datetime) -> Iterable[Problem]:
    # Losses in a store that no page reads make nothing on the pages untrue.
    level = Level.CARE if hub.elsewhere else Level.WRONG
    # The gap of a damaged file may be on a page as long as numbers are kept.
    counts_for = timedelta(days=hub.numbers_days or DAMAGE_COUNTS_FOR_DAYS)
    damaged = [it for it in hub.damaged or () if it.at is None or now - it.at < counts_for]
    if damaged:
        last = damaged[-1]
        when = f", the last at {moment(last.at)}" if last.at else ""
        files = counted(len(damaged), "damaged file")
        text = f"the hub's store set {files} aside{when}: {last.file}. Their numbers are missing."
        action = "Check that disk, then run `gpuvigil store verify`; `gpuvigil store stats` names the files."
        yield Problem(level=level, text=text, action=action)
    if hub.dropped_lines:
        until = f", up to {moment(hub.dropped_until)}" if hub.dropped_until else ""
        lines = counted(hub.dropped_lines, "line")
        text = f"the hub's store is full and has deleted its oldest {lines}{until}."
        action = "Raise `hub.store_bytes`, or lower `hub.telemetry_days` or `hub.rollup_days`."
        yield Problem(level=level, text=text, action=action)
    if hub.recent_bytes and hub.store_most_bytes and 2 * hub.recent_bytes > hub.store_most_bytes:
        text = "recent telemetry alone takes more than half of hub.store_bytes."
        action = (
            "Raise `hub.store_bytes`, or lower `hub.hot_hours`: the store may take more than that."
        )
        yield Problem(level=level, text=text, action=action)


def _records(hub: HubHealth) -> Iterable[Problem]:
    for it in hub.repairs or ():
        made = f" from the backup of {moment(it.backup_at)}" if it.backup_at else ""
        missing = "nothing is missing"
        if it.missing_since and it.missing_until:
            missing = f"records from {moment(it.missing_since)} to {moment(it.missing_until)} may be missing"
        when = f" at {moment(it.at)}" if it.at else ""
        text = f"the hub's records were damaged and restored{made}{when}: {missing}."
        if it.empty:
            text = (
                f"the hub's records were damaged{when}, and there was no backup: they begin anew."
            )
        lossy = it.empty or it.missing_since is not None
        yield Problem(
            level=Level.WRONG if lossy else Level.CARE,
            text=text,
            action=f"Check the disk under {it.file}, then move away the file that was set aside.",
        )


def _hub(hub: HubHealth) -> Iterable[Problem]:
    if hub.floods:
        named = ", ".join(
            f"{one.name or 'lines without a node'} ({counted(one.refused_lines, 'line')})"
            for one in hub.floods[:NAMED]
        )
        more = len(hub.floods) - NAMED
        named += f" and {more:,} more" if more > 0 else ""
        text = f"the hub refuses new series, there are too many: {named}."
        action = (
            "Find what makes them; raise `hub.series_per_node_count` or `hub.nodes_count`,"
            " whichever the hub's log names, only if they are meant."
        )
        yield Problem(level=Level.CARE, text=text, action=action)
    if hub.refused_lines:
        since = f" since {moment(hub.started_at)}" if hub.started_at else ""
        text = f"the hub refused {counted(hub.refused_lines, 'line')}{since}."
        action = "The collector's log names them."
        yield Problem(level=Level.CARE, text=text, action=action)
    if hub.queue_bytes and hub.queue_most_bytes:
        share = hub.queue_bytes / hub.queue_most_bytes
        if share > QUEUE_LIMIT:
            text = f"the hub's queue is {100 * share:.0f} % full."
            action = "Its disk does not keep up; while the queue is full, collectors keep their numbers on their own disks."
            yield Problem(level=Level.CARE, text=text, action=action)


def _versions(
    found: Sequence[ClusterHealth], hub: HubHealth, pulses: Iterable[Pulse | None]
) -> Iterable[Problem]:
    """Yield a problem for services or collectors of another version than the hub's, which serves adjacent ones."""
    services = {one.name: one.version for one in pulses if one is not None and one.version}
    services["dashboard"] = __version__
    other = [f"{name} {version}" for name, version in services.items() if version != hub.version]
    if hub.version and other:
        text = f"the hub is {hub.version}, and {', '.join(other)}."
        yield Problem(level=Level.CARE, text=text, action="Bring the services to one version.")
    for cluster in found:
        differ = [
            n for n in cluster.nodes if n.version and hub.version and n.version != hub.version
        ]
        if differ:
            named = _named(differ, lambda it: it.version)
            nodes = counted(len(differ), "collector")
            text = f"{with_kind('cluster', cluster.name)}: {nodes} of another version than the hub's {hub.version}: {named}."
            yield Problem(level=Level.CARE, text=text, action="Update them when convenient.")


def _named(nodes: Sequence[NodeHealth], text: Callable[[NodeHealth], str]) -> str:
    named = ", ".join(f"{node.subject.node} ({text(node)})" for node in nodes[:NAMED])
    more = len(nodes) - NAMED
    return f"{named} and {more:,} more" if more > 0 else named


def _ago(node: NodeHealth, now: datetime) -> str:
    return "never heard" if node.heard_at is None else f"for {duration(now - node.heard_at)}"


def _load(node: NodeHealth) -> str:
    return f"load {node.load_average or 0.0:,.0f} on {counted(round(node.processors or 0.0), 'processor')}"


def _seconds(value: float | None) -> str:
    return duration(timedelta(seconds=value or 0.0))
