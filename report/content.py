"""What a report says: every number that any output shows, rounded once, so that all agree.

GPU-hours are on one grid (`Report.digits` decimals), shares are percent. `None` is "not measured"
or "nothing to compare with" and is never shown as 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from .sheet import Sheet


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One of the numbers at the top."""

    key: str  # with its unit: "allocated_percent"
    label: str
    unit: str  # "percent", "GPU-hours", "kWh" or "incidents"
    value: float | None
    low: float | None = None  # bounds, where too little is known for one number
    high: float | None = None
    change: float | None = None  # against the span before; percentage points for shares
    more_is: str = ""  # "better", "worse" or neither
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One step of the chart; a step of which too little is known is absent."""

    at: datetime
    allocated_percent: float  # of the GPU-hours whose state was known
    used_percent: float | None  # of those too, and never more than allocated


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """One hour of the week."""

    weekday: int  # Monday is 0
    hour: int
    used_percent: float | None  # of known GPU-hours


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """One calendar day of the report's zone, or the part of it that lies in the span."""

    day: str  # "2026-11-14"
    allocated_percent: float | None
    used_of_allocated_percent: float | None
    allocated_gpu_hours: float | None  # None where nobody could say who held GPUs
    unavailable_gpu_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleWorth:
    """What people answered to one rule's messages in the span."""

    rule: str
    title: str
    noise: int
    useful: int
    incidents: int  # of the rule in the span, answered for or not
    unjudged: int  # of them, those that nobody answered for
    on_trial: (
        bool  # whether it has yet to be right often enough here, and is in the digest until then
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A sentence that says something of the span, and the rows that it rests on."""

    text: str
    rests_on: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something to do, and what it would save."""

    text: str
    gpu_hours_a_day: float
    cost_a_day: float | None  # None without a price
    rests_on: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Became:
    """What became of something that was to do a span ago."""

    text: str
    became: str
    done: bool
    rests_on: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One hardware incident."""

    id: str
    where: str
    title: str
    severity: str
    since: datetime
    hours: float  # within the span
    standing: bool
    gpus: int
    evidence: str
    action: str
    acknowledged_by: str
    mark: int = 0  # its number on the chart; 0 is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The GPU-hours of one state; the parts add up to what was installed."""

    state: str
    label: str
    meaning: str
    gpu_hours: float | None  # None for idle and free where nobody could say who held GPUs
    percent: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """GPU-hours out of service, by what they were lost to."""

    lost_to: str
    label: str
    meaning: str
    gpu_hours: float
    percent: float | None  # of the owned ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """GPU-hours in service against those owned; None where nobody could say what was out of service."""

    owned_gpu_hours: float | None = (
        None  # of which it is known; in service and lost ones add up to them
    )
    in_service_gpu_hours: float | None = None
    in_service_percent: float | None = None
    losses: tuple[Loss, ...] = ()
    unjudged_gpu_hours: float = 0.0  # owned ones of which it is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """How the numbers came about, and how far they can be trusted."""

    coverage_percent: float | None  # of GPU-hours since counting began
    quarters: int  # in the span, since counting began
    quarters_missing: int
    counted_since: datetime | None  # where counting began within the span
    definitions: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    excluded_nodes: tuple[str, ...]
    version: str
    collector_versions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One cluster and one span."""

    title: str
    span: str  # in words
    covers: str = ""  # "week", "month" or "quarter", if it is one
    time_zone: str = "UTC"  # whose days it has
    cluster: str
    simulated: bool
    start: datetime
    end: datetime
    made_at: datetime
    gpus: int
    nodes: int
    models: Mapping[str, int] = field(default_factory=dict)
    digits: int
    verdict: tuple[Sentence, Sentence]
    rules: tuple[RuleWorth, ...]
    actions: tuple[Action, ...]
    became: tuple[Became, ...]  # the actions of the span before
    figures: tuple[Figure, ...]
    comparison: str
    revised: str = ""  # what is not as in an earlier report of the same span and why, or until when it is a preview
    counted_from: datetime  # the start, or where counting began after it
    grain: str  # "hour"
    step: timedelta  # the grain as a length
    points: tuple[Point, ...]
    hours: tuple[Hour, ...]
    days: tuple[Day, ...]
    parts: tuple[Part, ...]
    installed_gpu_hours: float
    capacity: Capacity
    allocated_gpu_hours: float
    sheets: tuple[
        Sheet, ...
    ]  # who can act, teams, jobs, hardware, network, cloud: as far as there are any
    judged_hours: int  # of the span's, that were judged by what busy GPUs got done
    scattered_gpu_hours: float  # free on nodes that were partly held
    troubles: tuple[Trouble, ...]
    more_troubles: int
    unjudged: tuple[str, ...] = ()  # what could not be judged, and what it lacks
    currency: str = ""
    team: str = ""  # whose edition it is; empty: of all
    method: Method

    def sheet(self, key: str) -> Sheet | None:
        """The table of that key, if there is any."""
        return next((one for one in self.sheets if one.key == key), None)

    def figure(self, key: str) -> Figure:
        """The figure of that key; KeyError when there is none."""
        return {one.key: one for one in self.figures}[key]
