"""SQL over lines: how they are rolled up, and what a question reads from the hot table.

All names come from the catalogue.
"""

from collections.abc import Iterable, Sequence

from gpuvigil.metrics import Metric

from .aggregates import BUCKET_NS, ROLLED, Piece, pieces_of
from .question import Series, Window
from .schema import quoted

Span = tuple[int, int]

_OF_LINES: dict[Piece, str] = {
    Piece.COUNT: "count({0})",
    Piece.SUM: "sum({0})::DOUBLE",
    Piece.MIN: "min({0})",
    Piece.MAX: "max({0})",
    Piece.FIRST: 'arg_min({0}, "at")',
    Piece.FIRST_AT: 'epoch_ns(min("at") FILTER ({0} IS NOT NULL))',
    Piece.LAST: 'arg_max({0}, "at")',
    Piece.LAST_AT: 'epoch_ns(max("at") FILTER ({0} IS NOT NULL))',
}


def rolled_columns(metrics: Iterable[Metric]) -> list[tuple[str, str]]:
    """Return the columns of a roll-up beside the tags and `at`: each name, and its SQL over lines."""
    start = f'(epoch_ns("at") // {BUCKET_NS} * {BUCKET_NS})'
    columns = [
        ("lines", "count(*)"),
        ("offset_ns", f'sum(epoch_ns("at") - {start})::BIGINT'),
        ("first_at", 'min("at")'),
        ("last_at", 'max("at")'),
    ]
    for metric in metrics:
        columns += [
            (piece.of(metric.name), _OF_LINES[piece].format(quoted(metric.name)))
            for piece in ROLLED
        ]
    return columns


def of_hot(question: Window | Series, spans: Sequence[Span]) -> tuple[str, dict[str, str]]:
    """Return the query, and its parameters, for a row per subject (and step) of hot lines.

    `spans`: the times of these lines, each `[start_ns, end_ns)`.
    """
    tags = [quoted(tag) for tag in question.measurement.tags]
    given = ["count(*) AS lines"]
    given += ['epoch_ns(min("at")) AS first_ns', 'epoch_ns(max("at")) AS last_ns']
    if isinstance(question, Series):
        step = question.step_ns
        given.append(f'epoch_ns("at") // {step} * {step} AS step_ns')
        given.append(f'sum(epoch_ns("at") % {step})::DOUBLE AS offset_ns')
    given += [
        f"{_OF_LINES[piece].format(quoted(field))} AS {quoted(piece.of(field))}"
        for field, pieces in pieces_of(question).items()
        for piece in pieces
    ]
    where = question.where if isinstance(question, Series) else ()
    conditions = [
        _inside(spans),
        *(f"{quoted(tag)} = $w{number}" for number, (tag, _) in enumerate(where)),
    ]
    text = (
        f"SELECT {', '.join([*tags, *given])} FROM {quoted(question.measurement.name)}"
        f" WHERE {' AND '.join(conditions)} GROUP BY ALL"
    )
    return text, {f"w{number}": value for number, (_, value) in enumerate(where)}


def lines_of_hot(question: Window, spans: Sequence[Span]) -> str:
    """The hot table's lines of these times: the tags, `at`, and the fields that are asked for."""
    names = [*question.measurement.tags, "at", *pieces_of(question)]
    return (
        f"SELECT {', '.join(map(quoted, names))} FROM {quoted(question.measurement.name)}"
        f" WHERE {_inside(spans)}"
    )


def _inside(spans: Sequence[Span]) -> str:
    inside = [
        f'("at" >= make_timestamp_ns({start}) AND "at" < make_timestamp_ns({end}))'
        for start, end in spans
    ]
    return f"({' OR '.join(inside)})"
