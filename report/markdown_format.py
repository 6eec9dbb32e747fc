"""The report as Markdown: eight lines for a chat, then the tables."""

import re
from collections.abc import Iterable, Iterator, Sequence

from . import formatting
from .content import Figure, Report
from .shared_sentences import coverage_words, made

_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~&])")
# What chats make of a plain text: a call for somebody, a link.
_LIVELY = (("@", "@\u200b"), ("://", ":\u200b//"), ("www.", "www\u200b."))


def markdown(reports: Sequence[Report]) -> str:
    """One part per cluster."""
    return "\n---\n\n".join("\n".join(_lines(one)) + "\n" for one in reports)


def summary(report: Report) -> tuple[str, ...]:
    """At most eight lines: what to paste into a chat."""
    by_key = {one.key: one for one in report.figures}
    first, second = report.verdict
    lines = [
        f"**{text(report.title)}**, {text(report.span)}",
        f"{text(first)} {text(second)}",
        f"- {_figure(by_key['allocated_percent'], report)}; {_figure(by_key['used_of_allocated_percent'], report)}",
        f"- {_figure(by_key['idle_held_gpu_hours'], report)}; {_figure(by_key['unavailable_gpu_hours'], report)}",
        f"- {_figure(by_key['hardware_incidents'], report)}; {_figure(by_key['energy_kwh'], report)}",
    ]
    if report.actions:
        lines.append(f"- First: {text(report.actions[0])}")
    lines.append(f"- {text(report.comparison)}")
    return (*lines, f"- {text(coverage_words(report)[0])}")


def _lines(report: Report) -> Iterator[str]:
    yield from summary(report)
    yield ""
    yield f"{text(formatting.fleet(report))}; {text(formatting.in_service(report))}."
    yield from _rules(report)
    if len(report.actions) > 1:
        yield from ("", "## Do next", "")
        yield from (f"{n}. {text(one)}" for n, one in enumerate(report.actions, 1))
    yield from _owners(report)
    yield from _unjudged(report)
    yield from _days(report)
    yield from _parts(report)
    yield from _losses(report)
    yield from _holders(report)
    yield from _idle(report)
    yield from _underused(report)
    yield from _costs(report)
    yield from _hardware(report)
    yield from _method(report)


def _figure(one: Figure, report: Report) -> str:
    changed = formatting.change(one, report.digits)
    against = f" ({changed})" if changed else ""
    return f"{one.label}: **{formatting.value(one, report.digits)}**{against}"


def _owners(report: Report) -> Iterator[str]:
    if report.owners:
        rows = [
            (
                one.holder,
                formatting.hours(one.gpu_hours, report.digits),
                formatting.hours(one.zero_gpu_hours, report.digits),
            )
            for one in report.owners
        ]
        heads = ("Owner", "GPU-hours", "At 0 % GPU-h")
        yield from _table("Held at 0 %, by owner", heads, rows)


def _unjudged(report: Report) -> Iterator[str]:
    if report.unjudged:
        yield from ("", "## What could not be judged", "")
        yield from (f"- {text(one)}" for one in report.unjudged)


def _days(report: Report) -> Iterator[str]:
    rows = [
        (
            one.day,
            formatting.percent(one.allocated_percent),
            formatting.percent(one.used_of_allocated_percent),
            formatting.hours(one.allocated_gpu_hours, report.digits),
            formatting.hours(one.unavailable_gpu_hours, report.digits),
        )
        for one in report.days
    ]
    heads = (
        "Day (UTC)",
        "Allocated",
        "Used of allocated",
        "Allocated GPU-h",
        "Unavailable GPU-h",
    )
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


def _holders(report: Report) -> Iterator[str]:
    rest = [] if report.holders_rest is None else [report.holders_rest]
    rows = [
        (
            formatting.holder(one),
            one.user or "",
            "" if one.gpus is None else f"{one.gpus:,}",
            formatting.hours(one.gpu_hours, report.digits),
            formatting.percent(one.used_percent),
            formatting.hours(one.zero_gpu_hours, report.digits),
        )
        for one in (*report.holders, *rest, report.holders_total)
    ]
    heads = ("Holder", "User", "GPUs at once", "GPU-hours", "Used", "At 0 % GPU-h")
    yield from _table("By holder", heads, rows if report.holders else [], formatting.nobody(report))


def _idle(report: Report) -> Iterator[str]:
    rest = [] if report.idle_rest is None else [report.idle_rest]
    rows = [
        (
            one.where,
            one.holder,
            one.user,
            "" if one.since is None else formatting.at(one.since),
            "" if one.gpus is None else f"{one.gpus:,}",
            "" if one.hours is None else formatting.lasting(one.hours),
            formatting.hours(one.gpu_hours, report.digits),
            "still idle" if one.still else "",
        )
        for one in (*report.idle, *rest)
    ]
    if rows:
        total = formatting.hours(report.idle_gpu_hours, report.digits)
        rows.append(("all", "", "", "", "", "", total, ""))
    heads = ("Where", "Holder", "User", "Since (UTC)", "GPUs", "Hours", "GPU-hours", "")
    yield from _table("Idle and held", heads, rows, formatting.no_idle(report))


def _underused(report: Report) -> Iterator[str]:
    if not report.underused and not report.scattered_gpu_hours:
        return
    priced = report.underused_total.cost is not None
    rows = [
        (
            one.holder,
            one.user,
            one.advice,
            "" if one.gpus is None else f"{one.gpus:,}",
            formatting.hours(one.gpu_hours, report.digits),
            *(
                [formatting.NONE if one.cost is None else formatting.money(one.cost)]
                if priced
                else []
            ),
        )
        for one in (*report.underused, report.underused_total)
    ]
    heads = [*("Holder", "User", "Advice", "GPUs at once", "GPU-hours not filled")]
    heads += [report.currency] if priced else []
    yield from _table("Busy and doing little", heads, rows if report.underused else [])
    yield from ("", text(formatting.underused(report)))


def _rules(report: Report) -> Iterator[str]:
    rows = [
        (one.title, f"{one.noise:,}", f"{one.useful:,}", f"{one.incidents:,}")
        for one in report.rules
    ]
    heads = ("Rule", "Called noise", "Called useful", "Incidents")
    yield from _table("Worth being told?", heads, rows)
    if rows:
        yield from ("", text(formatting.noisiest(report)))


def _hardware(report: Report) -> Iterator[str]:
    counts = [
        (
            one.title,
            f"{one.incidents:,}",
            f"{one.gpus:,}",
            formatting.lasting(one.hours),
            f"{one.standing:,}",
        )
        for one in report.faults
    ]
    heads = ("Fault", "Incidents", "GPUs", "Hours standing", "Standing at the end")
    yield from _table("Hardware incidents", heads, counts, "None stood in this span.")
    yield from _troubles(report)


def _troubles(report: Report) -> Iterator[str]:
    rows = [
        (
            one.where,
            one.title,
            one.severity,
            formatting.at(one.since),
            formatting.lasting(one.hours) + (" still" if one.standing else ""),
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


def _costs(report: Report) -> Iterator[str]:
    rows = [
        (one.label, formatting.hours(one.gpu_hours, report.digits), formatting.money(one.cost))
        for one in report.costs
    ]
    yield from _table("What it cost", ("GPU-hours that were", "GPU-hours", report.currency), rows)


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


def text(value: str) -> str:
    """Text from outside as itself: no markup, no line of its own, no link, and nobody is called."""
    plain = _SPECIAL.sub(r"\\\1", " ".join(value.replace(formatting.GAP, " ").split()))
    for lively, still in _LIVELY:
        plain = plain.replace(lively, still)
    return plain
