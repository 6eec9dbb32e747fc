"""A job's GPUs, those that stand apart from the others first; pure."""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from statistics import median

from accounting.jobs.measured import Rank

# Converts the median absolute deviation into the standard deviation of a normal distribution.
_TO_DEVIATION = 1.4826
# The least difference that counts, as a share of the job's median, and in standard deviations [ours].
_LEAST_SHARE, _APART = 0.05, 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One number of a GPU with its title and format."""

    key: str
    title: str
    value: Callable[[Rank], float | None]
    show: Callable[[float], str]
    said: str = ""  # an explanation, if the title is not enough


def _seconds(value: float) -> str:
    return f"{value:.2f} s"


_OWN = "a step's time until the rank first waits for the others"
_AFTER = "the rest of the step, in collectives and waiting for the slowest rank"
_INPUT = "waiting for the next batch of data"
MEASURES = (
    Measure(
        key="own", title="Own compute", value=lambda it: it.own_seconds, show=_seconds, said=_OWN
    ),
    Measure(
        key="after",
        title="With others",
        value=lambda it: it.after_own_seconds,
        show=_seconds,
        said=_AFTER,
    ),
    Measure(
        key="input",
        title="Data wait",
        value=lambda it: it.input_seconds,
        show=_seconds,
        said=_INPUT,
    ),
    Measure(key="sm", title="SM activity", value=lambda it: it.sm_percent, show="{:.0f} %".format),
    Measure(
        key="used", title="Used", value=lambda it: it.utilization_percent, show="{:.0f} %".format
    ),
    Measure(key="power", title="Power", value=lambda it: it.watts, show="{:,.0f} W".format),
    Measure(
        key="clock",
        title="SM clock",
        value=lambda it: None if it.clock_hertz is None else it.clock_hertz / 1e6,
        show="{:,.0f} MHz".format,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A GPU, how far it is from the median of its job, and in which measures."""

    rank: Rank
    far: float  # in multiples of the limit: from 1 on it stands apart
    apart: frozenset[str]  # keys of the measures in which it stands apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """All GPUs, those that stand apart first, and the median of each measure that any GPU has."""

    lines: Sequence[Line]
    measures: Sequence[Measure]
    middle: Sequence[float]

    @property
    def apart(self) -> int:
        return sum(bool(line.apart) for line in self.lines)


def ordered(ranks: Sequence[Rank], with_incident: Container[str] = ()) -> Ranks:
    """Sort the GPUs: first those in `with_incident`, then by how far apart they are."""
    known = {
        measure: [it for rank in ranks if (it := measure.value(rank)) is not None]
        for measure in MEASURES
    }
    some = [measure for measure in MEASURES if known[measure]]
    middles = {measure.key: median(known[measure]) for measure in some}
    limits = {measure.key: _limit(known[measure], middles[measure.key]) for measure in some}
    lines = [_line(rank, some, middles, limits) for rank in ranks]
    return Ranks(
        lines=sorted(lines, key=lambda line: (line.rank.key not in with_incident, -line.far)),
        measures=some,
        middle=[middles[measure.key] for measure in some],
    )


def _limit(values: Sequence[float], middle: float) -> float:
    """Return the distance from the median at which a value stands apart."""
    spread = median(abs(value - middle) for value in values) * _TO_DEVIATION
    return max(_APART * spread, _LEAST_SHARE * abs(middle), 1e-9)


def _line(
    rank: Rank,
    measures: Sequence[Measure],
    middles: dict[str, float],
    limits: dict[str, float],
) -> Line:
    far = {
        measure.key: abs(value - middles[measure.key]) / limits[measure.key]
        for measure in measures
        if (value := measure.value(rank)) is not None
    }
    apart = frozenset(key for key, value in far.items() if value >= 1.0)
    return Line(rank=rank, far=max(far.values(), default=0.0), apart=apart)
