"""`gpuvigil compare`: faults per 1,000 node-days by a node attribute, to judge a roll-out."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence

from accounting.compare.comparison import Comparison, Difference, Row
from accounting.compare.faults import USUAL
from dashboard.lists.table import Column, Grid, Value, tenths, whole, yes_or_no
from gpuvigil.faults import FAULTS
from gpuvigil.model import SIMULATED_CLUSTER, Attribute
from gpuvigil.numbers_in_words import counted

# Ratios below this have two decimals.
_SMALL = 0.95


def _times(value: float) -> str:
    return f"{value:.2f}" if value < _SMALL else f"{value:,.1f}"


_COLUMNS = (
    Column(key="faults_per_1000_node_days", title="RATE", show=tenths, right=True),
    Column(key="rate_low", title="LOW", show=tenths, right=True),
    Column(key="rate_high", title="HIGH", show=tenths, right=True),
    Column(key="faults", title="FAULTS", show=whole, right=True),
    Column(key="node_days", title="NODE-DAYS", show=tenths, right=True),
    Column(key="nodes", title="NODES", show=whole, right=True),
    Column(key="cluster", title="CLUSTER", flexible=True),
    # The ratio to the other value, or to all others together.
    Column(key="ratio", title="RATIO", show=_times, right=True),
    Column(key="ratio_low", title="FROM", show=_times, right=True),
    Column(key="ratio_high", title="TO", show=_times, right=True),
    Column(key="more_than_chance", title="NOT CHANCE", show=yes_or_no),
)
_FOR_PEOPLE = 8
_ROWS_FOR_PEOPLE = 50
NOT_KNOWN = "not known"


def grid(
    comparisons: Iterable[Comparison], attribute: Attribute, faults: Collection[str] = USUAL
) -> Grid:
    """Return a row per value and cluster; clusters are neither summed nor compared."""
    them = list(comparisons)
    named = Column(
        key=attribute.value.replace("-", "_"), title=attribute.value.upper(), flexible=True
    )
    return Grid(
        columns=(named, *_COLUMNS),
        rows=[row for one in them for row in _rows(one)],
        for_people=_FOR_PEOPLE,
        rows_for_people=_ROWS_FOR_PEOPLE,
        head=[line for one in them for line in sentences(one, attribute)],
        notes=tuple(_notes(them, attribute, faults)),
        empty="No node-days were counted in this span: usage is counted by the quarter of an hour.",
    )


def sentences(one: Comparison, attribute: Attribute) -> Iterator[str]:
    """Yield what the numbers of one cluster show, and whether chance alone may explain it."""
    if not one.rows:
        return
    marked = " (simulated)" if one.cluster == SIMULATED_CLUSTER else ""
    begin, them, found = f"{one.cluster}{marked}: ", one.compared, one.differences
    if not found:
        what = f"{them[0].value} alone" if them else "known of no node"
        yield f"{begin}{attribute.value} {what} in this span: there is nothing to compare."
    elif not any(row.whole.faults for row in them):
        yield f"{begin}none of {len(them)} had a fault: nothing speaks against any."
    elif len(found) == 1:
        yield f"{begin}{attribute.value} {_rates(them)}."
        yield f"  {_difference(found[0])}: {_verdict(found[0])}."
    else:
        yield (
            f"{begin}{len(them)} were compared, each with all others together, by the stricter"
            f" limits that {len(them)} comparisons at once need."
        )
        told = [it for it in found if it.outlier is not None]
        if not any(it.holds for it in told):
            yield "  None of them differs from the others by more than chance."
        for it in told:
            yield f"  {_difference(it)}: {_verdict(it)}."


def _rates(them: Sequence[Row]) -> str:
    said: list[str] = []
    for row in them:
        low, high = row.whole.interval
        of = "" if said else " faults per 1,000 node-days"
        rate = f"{tenths(row.whole.rate or 0.0)} ({tenths(low)} to {tenths(high)}){of}"
        said.append(f"{row.value}: {rate} in {whole(row.whole.days)} node-days")
    return "; ".join(said)


def _rows(one: Comparison) -> Iterator[Sequence[Value]]:
    found = {it.value: it for it in one.differences}
    alone = next(iter(found.values())) if len(found) == 1 else None
    for row in one.rows:
        about = None if row.value is None else found.get(row.value)
        if alone is not None and row.value == alone.against:
            about = _turned(alone)
        yield (*_measured(row), one.cluster, *_against(about))


def _measured(row: Row) -> Sequence[Value]:
    low, high = row.whole.interval
    return (
        NOT_KNOWN if row.value is None else row.value,
        row.whole.rate,
        low if row.whole.seconds else None,
        _finite(high),
        row.whole.faults,
        row.whole.days,
        len(row.nodes),
    )


def _against(it: Difference | None) -> Sequence[Value]:
    if it is None:
        return (None, None, None, None)
    low, high = it.interval
    return _finite(it.ratio), None if it.ratio is None else low, _finite(high), it.holds


def _turned(it: Difference) -> Difference:
    """Return the difference of two values as seen from the other value."""
    low, high = it.interval
    return Difference(
        value=it.against or "",
        against=it.value,
        ratio=None if it.ratio is None else _over(it.ratio),
        interval=(_over(high), _over(low)),
        outlier=it.outlier,
    )


def _over(value: float) -> float:
    return 1.0 / value if value else math.inf


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value


def _difference(it: Difference) -> str:
    others = "the others" if it.against is None else it.against
    low, high = it.interval
    if it.ratio is None or math.isinf(it.ratio):
        have = "have" if it.against is None else "has"
        return f"{others} {have} no fault, {it.value} fails at least {_times(low)} times as often"
    if not it.ratio:
        return f"{it.value} has no fault: at most {_times(high)} times as often as {others}"
    # Both values have faults, so both ends of the interval are finite.
    between = f"({_times(low)} to {_times(high)})"
    return f"{it.value} fails {_times(it.ratio)} times as often as {others} {between}"


def _verdict(it: Difference) -> str:
    if it.outlier is None:
        return "chance alone could explain that"
    if it.holds:
        return "more than chance"
    one = it.outlier
    return (
        f"but {one.faults} of {counted(one.of, 'fault')} are {one.node}'s, and without it chance"
        " alone could explain that"
    )


def _notes(
    them: Sequence[Comparison], attribute: Attribute, faults: Collection[str]
) -> Iterator[str]:
    if not any(one.rows for one in them):
        return
    what = "failing hardware and nodes that died"
    if faults != USUAL:
        what = "; ".join(sorted(FAULTS[fault].title for fault in faults))
    yield (
        f"Faults per 1,000 node-days, with 95 % intervals: {what}; a node's faults"
        " within an hour count once."
    )
    yield (
        f"While it was heard, a node counts for the {attribute.value} that it had at that time. Other"
        " differences between nodes, such as model, age and work, are not taken into account."
    )
    unknown = [row for one in them for row in one.rows if row.value is None]
    if unknown:
        yield (
            f"{NOT_KNOWN}: not reported to gpuvigil at that time; these node-days are not compared."
        )
    until = min(one.until for one in them if one.rows)
    yield f"Counted until {until:%Y-%m-%d %H:%M} UTC."
