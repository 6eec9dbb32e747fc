"""Questions as SQL over lines and over their roll-ups. All names come from the catalogue.

Whatever is asked is reduced in two steps: each source gives one row per subject (and step) with
counts, sums, bounds, and these rows are put together. So lines and roll-ups of different spans of
time add up to exactly what all the lines would have given.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from gpuvigil.metrics import Measurement
from gpuvigil.store import Aggregate, Function

from ..rows import arrow_type
from .question import Series, Window
from .schema import quoted, sql_type, subjects_table

# Lines of a sealed hour are also kept as one row per subject and this long.
BUCKET_NS = 600_000_000_000

# The column with the time of a line, and of a roll-up.
_AT, _BUCKET = '"at"', '"bucket"'
_ARROW_TIME = pa.timestamp("us", "UTC")
# The difference of two 64-bit numbers may not fit into one; then it is not known.
_WHOLE_INCREASE = "TRY_CAST({1}::HUGEINT - {0}::HUGEINT AS BIGINT)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """Lines or roll-ups that can be read: SQL for FROM, which columns it has, and of when."""

    text: str
    columns: frozenset[str]
    spans: tuple[tuple[int, int], ...]  # nanoseconds; of a roll-up the start counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """SQL, its named parameters, and the answer's columns."""

    text: str
    parameters: dict[str, str]
    schema: pa.Schema


class Piece(str, Enum):
    """What is kept of one field of many lines, so that two such pieces can be put together.

    All but the first and the last value are in the roll-ups.
    """

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    FIRST = "first"
    FIRST_AT = "first_time"
    LAST = "last"
    LAST_AT = "last_time"

    def of(self, field: str) -> str:
        """The name of its column: `power_watts_sum`."""
        return f"{field}_{self.value}"


_OF_LINES: dict[Piece, str] = {
    Piece.COUNT: "count({0})",
    Piece.SUM: "sum({0})::DOUBLE",
    Piece.MIN: "min({0})",
    Piece.MAX: "max({0})",
    Piece.FIRST: 'arg_min({0}, "at")',
    Piece.FIRST_AT: 'min("at") FILTER ({0} IS NOT NULL)',
    Piece.LAST: 'arg_max({0}, "at")',
    Piece.LAST_AT: 'max("at") FILTER ({0} IS NOT NULL)',
}
_TOGETHER: dict[Piece, str] = {
    Piece.COUNT: "sum({0})::BIGINT",
    Piece.SUM: "sum({0})",
    Piece.MIN: "min({0})",
    Piece.MAX: "max({0})",
    Piece.FIRST: "arg_min({0}, {1})",
    Piece.FIRST_AT: "min({0})",
    Piece.LAST: "arg_max({0}, {1})",
    Piece.LAST_AT: "max({0})",
}
# Where a piece is put together by another one.
_BY = {Piece.FIRST: Piece.FIRST_AT, Piece.LAST: Piece.LAST_AT}
ROLLED = (Piece.COUNT, Piece.SUM, Piece.MIN, Piece.MAX)
_PIECES: dict[Function, tuple[Piece, ...]] = {
    Function.COUNT: (Piece.COUNT,),
    Function.MEAN: (Piece.COUNT, Piece.SUM),
    Function.MIN: (Piece.MIN,),
    Function.MAX: (Piece.MAX,),
    Function.FIRST: (Piece.FIRST, Piece.FIRST_AT),
    Function.LAST: (Piece.LAST, Piece.LAST_AT),
    Function.INCREASE: (Piece.MIN, Piece.MAX),
}

_Pair = tuple[str, Piece]  # a field, and what is kept of it
_Pairs = Sequence[_Pair]


def can_be_rolled(question: Window | Series) -> bool:
    """Whether roll-ups of a span answer as its lines would."""
    if isinstance(question, Series):
        return question.step_ns % BUCKET_NS == 0
    unrolled = (Function.FIRST, Function.LAST)
    return all(it.function not in unrolled for it in question.aggregates)


def compiled(
    question: Window | Series,
    hot: Relation,
    sealed: Sequence[Relation],
    rolled: Sequence[Relation],
) -> Query:
    """The whole answer, in order, from the hot table, sealed lines and roll-ups."""
    measurement = question.measurement
    tags = [quoted(tag) for tag in measurement.tags]
    keys = [*tags, "step_at"] if isinstance(question, Series) else tags
    pairs = _pairs(question)
    pieces = _of_lines(question, [hot], pairs, tags)
    sources = []
    if sealed:
        sources.append(_of_lines(question, sealed, pairs, ["subject"]))
    if rolled:
        sources.append(_of_rolled(question, rolled, pairs))
    if sources:
        subjects = quoted(subjects_table(measurement))
        numbered = f"({' UNION ALL BY NAME '.join(sources)}) JOIN {subjects} USING (subject)"
        parts = f"{pieces} UNION ALL BY NAME SELECT * EXCLUDE (subject) FROM {numbered}"
        pieces = (
            f"SELECT {', '.join([*keys, *_together(question, pairs)])} FROM ({parts}) GROUP BY ALL"
        )
    kinds, columns = _answer(question)
    text = f"SELECT {', '.join([*keys, *columns])} FROM ({pieces}) ORDER BY {', '.join(keys)}"
    where = question.where if isinstance(question, Series) else ()
    return Query(
        text=text,
        parameters={f"w{number}": value for number, (_, value) in enumerate(where)},
        schema=pa.schema([(tag, pa.string()) for tag in measurement.tags] + kinds),
    )


def rolled_columns(measurement: Measurement) -> list[tuple[str, str]]:
    """Columns of a roll-up beside the tags and `at`: each name, and how lines give it."""
    start = f'(epoch_ns("at") // {BUCKET_NS} * {BUCKET_NS})'
    columns = [
        ("lines", "count(*)"),
        ("offset_ns", f'sum(epoch_ns("at") - {start})::BIGINT'),
        ("first_at", 'min("at")'),
        ("last_at", 'max("at")'),
    ]
    for metric in measurement.metrics:
        columns += [
            (piece.of(metric.name), _OF_LINES[piece].format(quoted(metric.name)))
            for piece in ROLLED
        ]
    return columns


def _pairs(question: Window | Series) -> _Pairs:
    if isinstance(question, Series):
        wanted = [(name, _PIECES[Function.MEAN]) for name in question.fields]
    else:
        wanted = [(it.field, _PIECES[it.function]) for it in question.aggregates]
    return list(dict.fromkeys((field, piece) for field, pieces in wanted for piece in pieces))


def _of_lines(
    question: Window | Series, lines: Iterable[Relation], pairs: _Pairs, who: Sequence[str]
) -> str:
    """One row per subject (and step) of lines; `who`: the columns that tell subjects apart."""
    measurement = question.measurement
    fields = dict.fromkeys(field for field, _ in pairs)
    union = " UNION ALL ".join(
        f"SELECT {', '.join([*who, _AT, *(_column(measurement, it, name) for name in fields)])}"
        f" FROM {it.text} WHERE {_condition(question, it, _AT)}"
        for it in lines
    )
    given = ["count(*) AS lines", 'min("at") AS first_at', 'max("at") AS last_at']
    if isinstance(question, Series):
        given.append(f'sum(epoch_ns("at") % {question.step_ns}) AS offset_ns')
    given += [
        f"{_OF_LINES[piece].format(quoted(field))} AS {quoted(piece.of(field))}"
        for field, piece in pairs
    ]
    return f"SELECT {', '.join([*who, *_step(question), *given])} FROM ({union}) GROUP BY ALL"


def _of_rolled(question: Window | Series, rolled: Iterable[Relation], pairs: _Pairs) -> str:
    """The same of roll-ups, subjects by number; they have no first and no last values."""
    measurement = question.measurement
    there = [pair for pair in pairs if pair[1] in ROLLED]
    columns = ["subject", f"{_BUCKET} AS {_AT}", "lines", "first_at", "last_at", "offset_ns"]
    union = " UNION ALL ".join(
        f"SELECT {', '.join([*columns, *(_rolled_column(measurement, it, p) for p in there)])}"
        f" FROM {it.text} WHERE {_condition(question, it, _BUCKET)}"
        for it in rolled
    )
    given = ["sum(lines)::BIGINT AS lines", "min(first_at) AS first_at", "max(last_at) AS last_at"]
    if isinstance(question, Series):
        into = f'(epoch_ns("at") % {question.step_ns})::HUGEINT'
        given.append(f"sum({into} * lines + offset_ns) AS offset_ns")
    given += _pieces_together(there)
    return f"SELECT {', '.join(['subject', *_step(question), *given])} FROM ({union}) GROUP BY ALL"


def _step(question: Window | Series) -> list[str]:
    """When the step begins that a line is in."""
    if isinstance(question, Window):
        return []
    step = question.step_ns
    return [f'make_timestamp_ns(epoch_ns("at") // {step} * {step}) AS step_at']


def _together(question: Window | Series, pairs: _Pairs) -> list[str]:
    """Rows of the same subject (and step) as one."""
    given = ["sum(lines)::BIGINT AS lines", "min(first_at) AS first_at", "max(last_at) AS last_at"]
    if isinstance(question, Series):
        given.append("sum(offset_ns) AS offset_ns")
    return given + _pieces_together(pairs)


def _pieces_together(pairs: _Pairs) -> list[str]:
    found = []
    for field, piece in pairs:
        name, by = quoted(piece.of(field)), _BY.get(piece, piece)
        found.append(f"{_TOGETHER[piece].format(name, quoted(by.of(field)))} AS {name}")
    return found


def _answer(question: Window | Series) -> tuple[list[tuple[str, pa.DataType]], list[str]]:
    """The columns after the keys, and their names and types from the first after the tags on."""
    if isinstance(question, Series):
        kinds = [("at", _ARROW_TIME), ("offset_seconds", pa.float64())]
        kinds += [(name, pa.float64()) for name in question.fields]
        means = [_mean(name) for name in question.fields]
        return kinds, ["offset_ns::DOUBLE / lines / 1e9", *means]
    kinds = [("samples", pa.int64()), ("first_at", _ARROW_TIME), ("last_at", _ARROW_TIME)]
    kinds += [(it.column, _kind(it, question.measurement)) for it in question.aggregates]
    reduced = [_reduced(it, question.measurement) for it in question.aggregates]
    return kinds, ["lines", "first_at", "last_at", *reduced]


def _mean(field: str) -> str:
    return f"{quoted(Piece.SUM.of(field))} / {quoted(Piece.COUNT.of(field))}"


def _reduced(aggregate: Aggregate, measurement: Measurement) -> str:
    names = [quoted(piece.of(aggregate.field)) for piece in _PIECES[aggregate.function]]
    if aggregate.function is Function.MEAN:
        return _mean(aggregate.field)
    if aggregate.function is Function.INCREASE:
        whole = measurement.metric(aggregate.field).integer
        return (_WHOLE_INCREASE if whole else "{1} - {0}").format(*names)
    return names[0]


def _kind(aggregate: Aggregate, measurement: Measurement) -> pa.DataType:
    if aggregate.function is Function.COUNT:
        return pa.int64()
    if aggregate.function is Function.MEAN:
        return pa.float64()
    return arrow_type(measurement.metric(aggregate.field))


def _column(measurement: Measurement, relation: Relation, field: str) -> str:
    """A field; null where it was not in the catalogue yet when the lines were sealed."""
    if field in relation.columns:
        return quoted(field)
    return f"NULL::{sql_type(measurement.metric(field))} AS {quoted(field)}"


def _rolled_column(measurement: Measurement, relation: Relation, pair: _Pair) -> str:
    field, piece = pair
    name = quoted(piece.of(field))
    if field in relation.columns:
        return name
    if piece == Piece.COUNT:
        return f"0::BIGINT AS {name}"
    kind = "DOUBLE" if piece == Piece.SUM else sql_type(measurement.metric(field))
    return f"NULL::{kind} AS {name}"


def _condition(question: Window | Series, relation: Relation, at: str) -> str:
    spans = " OR ".join(
        f"({at} >= make_timestamp_ns({start}) AND {at} < make_timestamp_ns({end}))"
        for start, end in relation.spans
    )
    where = question.where if isinstance(question, Series) else ()
    equal = [f"{quoted(tag)} = $w{number}" for number, (tag, _) in enumerate(where)]
    return " AND ".join([f"({spans})", *equal])
