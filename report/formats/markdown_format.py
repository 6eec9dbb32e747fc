"""The report as Markdown: eight lines for a chat, then the tables."""

from collections.abc import Iterable, Iterator, Sequence

from gpuvigil.markdown import text

from ..model import formatting
from ..model.content import Figure, Report
from ..model.sheet import said
from .shared_sentences import coverage_words, made


def markdown(reports: Sequence[Report]) -> str:
    """Return the reports as Markdown, one part per cluster."""
    return "\n---\n\n".join("\n".join(_lines(one)) + "\n" for one in reports)


def summary(report: Report) -> tuple[str, ...]:
    """Return at most eight lines to paste into a chat."""
    first, second = report.verdict
    shown = [_figure(one, report) for one in report.figures]
    lines = [
        f"**{text(report.title)}**, {text(report.span)}",
        f"{text(first.text)} {text(second.text)}",
        *(f"- {'; '.join(shown[n : n + 2])}" for n in range(0, len(shown), 2)),
    ]
    if report.actions:
        lines.append(f"- First: {text(report.actions[0].text)}")
    lines.append(f"- {text(f'{report.comparison} {report.revised}'.rstrip())}")
    return (*lines, f"- {text(coverage_words(report)[0])}")


def _lines(report: Report) -> Iterator[str]:
    yield from summary(report)
    yield ""
    if report.team:
        yield from _actions(report)
        for key in ("users", "projects", "partitions", "jobs", "energy", "work_lost", "network"):
            yield from _sheet(report, key)
    else:
        yield from _of_cluster(report)
    yield from _method(report)


def _of_cluster(report: Report) -> Iterator[str]:
    yield f"{text(formatting.fleet(report))}; {text(formatting.in_service(report))}."
    yield from _actions(report)
    for key in ("losses", "owners", "teams"):
        yield from _sheet(report, key)
    if report.unjudged:
        yield from ("", "## What could not be judged", "")
        yield from (f"- {text(one)}" for one in report.unjudged)
    yield from _days(report)
    yield from _parts(report)
    yield from _losses(report)
    for key in ("users", "projects", "partitions", "jobs"):
        yield from _sheet(report, key)
    if said := formatting.scattered(report):
        yield from ("", text(said))
    yield from _sheet(report, "energy")
    yield from _hardware(report)
    for key in ("work_lost", "sizes", "offenders", "returns", "network", "cloud"):
        yield from _sheet(report, key)
    yield from _rules(report)


def _actions(report: Report) -> Iterator[str]:
    if report.actions or report.became:
        yield from ("", "## Do next", "")
    for number, one in enumerate(report.actions, 1):
        saves = formatting.saves(one.gpu_hours_a_day, one.cost_a_day, report.currency)
        yield f"{number}. {text(one.text)} This {text(saves)}."
    if report.became:
        yield from ("", "Of the span before:", "")
        yield from (f"- {text(one.text)} **{text(one.became)}**" for one in report.became)


def _sheet(report: Report, key: str) -> Iterator[str]:
    """Yield one table, if it exists."""
    sheet = report.sheet(key)
    if sheet is None or not sheet.rows:
        return
    found = sheet.shown
    listed = [*found.rows, *([] if found.total is None else [found.total])]
    rows = [[said(*one) for one in zip(found.columns, row, strict=True)] for row in listed]
    yield from _table(found.heading, [one.label for one in found.columns], rows)
    yield from ("", text(found.caption) + ".")


def _figure(one: Figure, report: Report) -> str:
    changed = formatting.change(one, report.digits)
    against = f" ({changed})" if changed else ""
    return f"{one.label}: **{formatting.value(one, report.digits)}**{against}"


def _days(report: Report) -> Iterator[str]:
    first, *numbers = formatting.DAY_HEADS
    heads = (f"{first} ({report.time_zone})", *numbers)
    rows = [formatting.day_cells(one, report.digits) for one in report.days]
    yield from _table("Allocated against used, by day", heads, rows)


def _parts(report: Report) -> Iterator[str]:
    rows = [
        (
            one.label,
            formatting.hours(one.gpu_hours, report.digits),
            formatting.percent(one.percent, 1),
        )
        for one in report.parts
    ]
    whole = formatting.hours(report.installed_gpu_hours, report.digits)
    rows.append(("installed", whole, "100.0 %" if report.installed_gpu_hours else formatting.NONE))
    yield from _table("Where the GPU-hours went", ("State", "GPU-hours", "Share"), rows)


def _losses(report: Report) -> Iterator[str]:
    found = report.capacity
    rows = [
        (
            one.label,
            formatting.hours(one.gpu_hours, report.digits),
            formatting.percent(one.percent, 1),
        )
        for one in found.losses
    ]
    if rows:
        said = formatting.hours(found.in_service_gpu_hours, report.digits)
        rows.append(("in service", said, formatting.percent(found.in_service_percent, 1)))
        rows.append(("owned", formatting.hours(found.owned_gpu_hours, report.digits), "100.0 %"))
    heads = ("Lost to", "GPU-hours", "Of owned")
    yield from _table("GPUs in service", heads, rows, formatting.unjudged(report))
    if rows and found.unjudged_gpu_hours:
        yield from ("", text(formatting.unjudged(report)))


def _rules(report: Report) -> Iterator[str]:
    rows = [(one.title, *formatting.answers(one)) for one in report.rules]
    heads = ("Rule", "Called noise", "Called useful", "Incidents", "Not judged", "Told in")
    yield from _table("Were the messages useful?", heads, rows)
    if rows:
        yield from ("", text(formatting.noisiest(report)))


def _hardware(report: Report) -> Iterator[str]:
    if report.sheet("faults") is None:
        yield from ("", "## Hardware incidents", "", "None in this span.")
    yield from _sheet(report, "faults")
    yield from _troubles(report)


def _troubles(report: Report) -> Iterator[str]:
    rows = [
        (
            one.where,
            one.title,
            one.severity,
            formatting.at(one.since),
            formatting.lasting(one.hours) + (" still" if one.open else ""),
            f"{one.gpus:,}",
            one.evidence,
            one.action,
            one.acknowledged_by,
        )
        for one in report.troubles
    ]
    heads = (
        "Where",
        "What",
        "Severity",
        "Since (UTC)",
        "Lasted",
        "GPUs hit",
        "Evidence",
        "First action",
        "Acknowledged by",
    )
    more = f" and {report.more_troubles:,} more" if report.more_troubles else ""
    yield from _table(f"The worst incidents{more}", heads, rows)


def _method(report: Report) -> Iterator[str]:
    yield from ("", "## Method and coverage", "")
    yield from (f"- {text(one)}" for one in coverage_words(report))
    yield from (f"- **{text(term)}**: {text(said)}" for term, said in report.method.definitions)
    yield from (f"- {text(note)}" for note in report.method.notes)
    yield f"- {text(made(report))}"


def _table(
    heading: str, heads: Sequence[str], rows: Iterable[Sequence[str]], none: str = ""
) -> Iterator[str]:
    listed = list(rows)
    if not listed and not none:
        return
    yield from ("", f"## {heading}", "")
    if not listed:
        yield none
        return
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    yield from (f"| {' | '.join(text(cell) for cell in row)} |" for row in listed)
