"""The content of a report: every number that any output shows, rounded once, so that all agree.

GPU-hours have the same number of decimals (`Report.digits`), shares are percent. `None` is "not measured"
or "nothing to compare with" and is never shown as 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from .sheet import Sheet


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One of the figures at the top."""

    key: str  # with its unit: "allocated_percent"
    label: str
    unit: str  # "percent", "GPU-hours", "kWh" or "incidents"
    value: float | None
    low: float | None = None  # bounds, where too little is known for one number
    high: float | None = None
    change: float | None = None  # from the previous span; percentage points for shares
    more_is: str = ""  # "better", "worse" or neither
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One step of the chart; a step of which too little is known has no point."""

    at: datetime
    allocated_percent: float  # of the GPU-hours whose state was known
    used_percent: float | None  # of the same GPU-hours, and never more than allocated


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """One hour of the week."""

    weekday: int  # Monday is 0
    hour: int
    used_percent: float | None  # of known GPU-hours


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """One calendar day in the report's time zone, or the part of it within the span."""

    day: str  # "2026-11-14"
    allocated_percent: float | None
    used_of_allocated_percent: float | None
    allocated_gpu_hours: float | None  # None when nobody could say who held GPUs
    unavailable_gpu_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleWorth:
    """People's feedback on one rule's messages within the span."""

    rule: str
    title: str
    noise: int
    useful: int
    incidents: int  # of the rule in the span, with feedback or without
    unjudged: int  # those without feedback
    on_trial: bool  # whether the rule is still on trial here, and so told in the digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A sentence about the span, and the rows that it is based on."""

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
    """The outcome of an action of the previous report."""

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
    open: bool  # at the end of the span
    gpus: int
    evidence: str
    action: str
    acknowledged_by: str
    mark: int = 0  # its number on the chart; 0 is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The GPU-hours in one state; the parts add up to what was installed."""

    state: str
    label: str
    meaning: str
    gpu_hours: float | None  # None for idle and free when nobody could say who held GPUs
    percent: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """GPU-hours out of service for one reason."""

    lost_to: str
    label: str
    meaning: str
    gpu_hours: float
    percent: float | None  # of the owned ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Owned GPU-hours and those in service; None when nobody could say what was out of service."""

    owned_gpu_hours: float | None = None  # that could be judged: in service plus lost
    in_service_gpu_hours: float | None = None
    in_service_percent: float | None = None
    losses: tuple[Loss, ...] = ()
    unjudged_gpu_hours: float = 0.0  # owned ones that could not be judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """The origin of the numbers, and how far they can be trusted."""

    coverage_percent: float | None  # of GPU-hours since counting began
    quarters: int  # in the span, since counting began
    quarters_missing: int
    counted_since: datetime | None  # if counting began within the span
    definitions: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    excluded_nodes: tuple[str, ...]
    version: str
    collector_versions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The report of one cluster and one span."""

    title: str
    span: str  # in words
    covers: str = ""  # "week", "month" or "quarter", if the span is one
    time_zone: str = "UTC"  # the time zone of its days
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
    became: tuple[Became, ...]  # outcomes of the previous span's actions
    figures: tuple[Figure, ...]
    comparison: str
    revised: str = ""  # what differs from an earlier report and why, or until when it is a preview
    counted_from: datetime  # the start, or when counting began within the span
    grain: str  # "hour"
    step: timedelta  # the grain as a length
    points: tuple[Point, ...]
    hours: tuple[Hour, ...]
    days: tuple[Day, ...]
    parts: tuple[Part, ...]
    installed_gpu_hours: float
    capacity: Capacity
    allocated_gpu_hours: float
    sheets: tuple[Sheet, ...]  # act, teams, jobs, hardware, network, cloud: those that exist
    judged_hours: int  # hours of the span in which busy GPUs' activity was judged
    scattered_gpu_hours: float  # free on partly held nodes
    troubles: tuple[Trouble, ...]
    more_troubles: int
    unjudged: tuple[str, ...] = ()  # what could not be judged, and what is missing for it
    currency: str = ""
    team: str = ""  # the team of this edition; empty: everybody
    method: Method

    def sheet(self, key: str) -> Sheet | None:
        """Return the table with that key; None when there is none."""
        return next((one for one in self.sheets if one.key == key), None)

    def figure(self, key: str) -> Figure:
        """Return the figure with that key; raise KeyError when there is none."""
        return {one.key: one for one in self.figures}[key]
