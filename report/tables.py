"""The tables of the HTML report."""

from collections.abc import Sequence

from gpuvigil.web.markup import Html, tag

from . import formatting
from .content import Holder, IdleSpell, Report, Trouble, Underuse
from .palette import LINE, SOFT, STATE_FILLS, USED

_Column = tuple[str, bool]  # its head, and whether it holds numbers


def by_day(report: Report) -> Html:
    """Every day of the span."""
    columns = (
        ("Day (UTC)", False),
        ("Allocated", True),
        ("Used of allocated", True),
        ("Allocated GPU-h", True),
        ("Unavailable GPU-h", True),
    )
    rows = [
        _row(
            one.day,
            formatting.percent(one.allocated_percent),
            formatting.percent(one.used_of_allocated_percent),
            formatting.hours(one.allocated_gpu_hours, report.digits),
            formatting.hours(one.unavailable_gpu_hours, report.digits),
        )
        for one in report.days
    ]
    return _table("The same by day", columns, rows)


def by_state(report: Report) -> Html:
    """The five states; they add up to what was installed."""
    columns = (("State", False), ("Meaning", False), ("GPU-hours", True), ("Share", True))
    rows = [
        tag(
            "tr",
            tag("th", _swatch(part.state), part.label, scope="row"),
            tag("td", part.meaning),
            tag("td", formatting.hours(part.gpu_hours, report.digits), class_="n"),
            tag("td", formatting.percent(part.percent, 1), class_="n"),
        )
        for part in report.parts
    ]
    whole = formatting.hours(report.installed_gpu_hours, report.digits)
    foot = tag(
        "tr",
        tag("th", "installed", scope="row"),
        tag("td", ""),
        tag("td", whole, class_="n"),
        tag("td", "100.0 %", class_="n"),
    )
    return _table("GPU-hours by state", columns, rows, foot)


def by_loss(report: Report) -> Html:
    """What was lost to what, and what was in service; they add up to what is owned."""
    columns = (("Lost to", False), ("Meaning", False), ("GPU-hours", True), ("Of owned", True))
    found = report.capacity
    in_service = found.in_service_gpu_hours, found.in_service_percent
    listed = [(one.label, one.meaning, one.gpu_hours, one.percent) for one in found.losses]
    rows = [
        tag(
            "tr",
            tag("th", label, scope="row"),
            tag("td", meaning),
            tag("td", formatting.hours(hours, report.digits), class_="n"),
            tag("td", formatting.percent(percent, 1), class_="n"),
        )
        for label, meaning, hours, percent in (
            *listed,
            ("in service", "whether a job had it or not", *in_service),
        )
    ]
    foot = tag(
        "tr",
        tag("th", "owned", scope="row"),
        tag("td", ""),
        tag("td", formatting.hours(found.owned_gpu_hours, report.digits), class_="n"),
        tag("td", "100.0 %", class_="n"),
    )
    return _table("GPU-hours in service, and lost ones by reason", columns, rows, foot)


def by_holder(report: Report) -> Html:
    """Who had most, the rest together, and all."""
    columns = (
        ("Holder", False),
        ("User", False),
        ("GPUs at once", True),
        ("GPU-hours", True),
        ("Used", True),
        ("At 0 % GPU-h", True),
    )
    rows = [_holder(one, report.digits) for one in report.holders]
    if report.holders_rest is not None:
        rows.append(_holder(report.holders_rest, report.digits, "rest"))
    foot = _holder(report.holders_total, report.digits)
    said = "GPUs that several hold at once count in equal parts; the rows add up to the total"
    return _table(said, columns, rows, foot, long=True)


def by_owner(report: Report) -> Html:
    """What each user, account or namespace had, those that had most at 0 % first."""
    columns = (("Owner", False), ("GPU-hours", True), ("Used", True), ("At 0 % GPU-h", True))
    rows = [
        tag(
            "tr",
            tag("th", one.holder, scope="row"),
            tag("td", formatting.hours(one.gpu_hours, report.digits), class_="n"),
            tag("td", formatting.percent(one.used_percent), class_="n"),
            tag("td", formatting.hours(one.zero_gpu_hours, report.digits), class_="n"),
        )
        for one in report.owners
    ]
    return _table("What each owner held, and what of it was at 0 %", columns, rows)


def _holder(one: Holder, digits: int, kind: str | None = None) -> Html:
    used = formatting.percent(one.used_percent)
    command = tag("span", f" {one.command}", class_="soft") if one.command else Html("")
    return tag(
        "tr",
        tag("th", one.holder, command, scope="row"),
        _user(one.user or ""),
        tag("td", "" if one.gpus is None else f"{one.gpus:,}", class_="n"),
        tag("td", formatting.hours(one.gpu_hours, digits), class_="n"),
        tag("td", _bar(one.used_percent), tag("span", used, class_="share"), class_="n"),
        tag("td", formatting.hours(one.zero_gpu_hours, digits), class_="n"),
        class_=kind,
    )


def costs(report: Report) -> Html:
    """What GPU-hours cost, each kind a part of the one above it."""
    columns = (("GPU-hours that were", False), ("GPU-hours", True), (report.currency, True))
    rows = [
        _row(one.label, formatting.hours(one.gpu_hours, report.digits), formatting.money(one.cost))
        for one in report.costs
    ]
    return _table("GPU-hours that have a price, and their cost", columns, rows)


def _bar(percent: float | None) -> Html:
    """A small bar; of what was not measured there is none."""
    if percent is None:
        return Html("")
    width = min(max(percent, 0.0), 100.0)
    return Html(
        f'<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect width="100" height="10" fill="{SOFT}" stroke="{LINE}"/>'
        f'<rect width="{width:.0f}" height="10" fill="{USED}"/></svg>'
    )


def _swatch(state: str) -> Html:
    fill = STATE_FILLS[state].fill
    return Html(f'<span class="swatch" style="background:{fill}" aria-hidden="true"></span>')


def idle(report: Report) -> Html:
    """What the idle rule found."""
    columns = (
        ("Where", False),
        ("Holder", False),
        ("User", False),
        ("Since (UTC)", False),
        ("GPUs", True),
        ("Hours", True),
        ("GPU-hours", True),
        ("", False),
    )
    rows = [_spell(one, report.digits) for one in report.idle]
    if report.idle_rest is not None:
        rows.append(_spell(report.idle_rest, report.digits, "rest"))
    total = formatting.hours(report.idle_gpu_hours, report.digits)
    foot = tag(
        "tr",
        tag("th", "all", scope="row"),
        *(tag("td", "") for _ in range(5)),
        tag("td", total, class_="n"),
        tag("td", ""),
    )
    return _table(
        "Held, and nothing computed for as long as the idle rule asks", columns, rows, foot
    )


def _spell(one: IdleSpell, digits: int, kind: str | None = None) -> Html:
    return tag(
        "tr",
        tag("th", one.where, scope="row"),
        tag("td", one.holder),
        _user(one.user),
        tag("td", "" if one.since is None else formatting.at(one.since), class_="when"),
        tag("td", "" if one.gpus is None else f"{one.gpus:,}", class_="n"),
        tag("td", "" if one.hours is None else formatting.lasting(one.hours), class_="n"),
        tag("td", formatting.hours(one.gpu_hours, digits), class_="n"),
        tag("td", tag("span", "still idle", class_="still") if one.still else ""),
        class_=kind,
    )


def underused(report: Report) -> Html:
    """Who was busy and did not fill their GPUs, and what they could do."""
    columns: list[_Column] = [
        *(("Holder", False), ("User", False), ("Advice", False)),
        *(("GPUs at once", True), ("GPU-hours not filled", True)),
    ]
    priced = report.underused_total.cost is not None
    columns += [(report.currency, True)] if priced else []
    rows = [_underuse(one, report.digits, priced=priced) for one in report.underused]
    foot = _underuse(report.underused_total, report.digits, priced=priced)
    return _table("Of hours that holders had as a whole", columns, rows, foot) if rows else Html("")


def _underuse(one: Underuse, digits: int, *, priced: bool) -> Html:
    cost = formatting.NONE if one.cost is None else formatting.money(one.cost)
    return tag(
        "tr",
        tag("th", one.holder, scope="row"),
        _user(one.user),
        tag("td", one.advice),
        tag("td", "" if one.gpus is None else f"{one.gpus:,}", class_="n"),
        tag("td", formatting.hours(one.gpu_hours, digits), class_="n"),
        *([tag("td", cost, class_="n")] if priced else []),
    )


def faults(report: Report) -> Html:
    """Incidents by fault."""
    columns = (
        ("Fault", False),
        ("Incidents", True),
        ("GPUs", True),
        ("Hours standing", True),
        ("Standing at the end", True),
    )
    rows = [
        _row(
            one.title,
            f"{one.incidents:,}",
            f"{one.gpus:,}",
            formatting.lasting(one.hours),
            f"{one.standing:,}",
        )
        for one in report.faults
    ]
    return _table("By fault; GPUs are those that its incidents cover", columns, rows)


def rules(report: Report) -> Html:
    """What people answered to messages, by rule."""
    columns = (
        ("Rule", False),
        ("Called noise", True),
        ("Called useful", True),
        ("Incidents", True),
    )
    rows = [
        _row(one.title, f"{one.noise:,}", f"{one.useful:,}", f"{one.incidents:,}")
        for one in report.rules
    ]
    return _table("Answers to messages, by rule; the noisiest first", columns, rows)


def troubles(report: Report) -> Html:
    """The worst incidents, each with what it rests on and what to do first."""
    columns = (
        ("Where", False),
        ("What, evidence, first action", False),
        ("Severity", False),
        ("Since (UTC)", False),
        ("Lasted", True),
        ("GPUs hit", True),
    )
    rows = [_trouble(one) for one in report.troubles]
    more = report.more_troubles
    said = f" and {more:,} more" if more else ""
    caption = f"The worst first{said}; numbers are those on the chart"
    return _table(caption, columns, rows, long=True)


def _trouble(one: Trouble) -> Html:
    mark = tag("span", str(one.mark), class_="mark") if one.mark else Html("")
    still = tag("span", " still", class_="still") if one.standing else Html("")
    details = [tag("div", one.evidence, class_="evidence")] if one.evidence else []
    details += [tag("div", f"First action: {one.action}")] if one.action else []
    if one.acknowledged_by:
        details.append(tag("div", f"Acknowledged by {one.acknowledged_by}"))
    # One row and not two: no printer may part an incident from what to do about it.
    return tag(
        "tr",
        tag("th", mark, one.where, scope="row"),
        tag("td", tag("div", one.title, class_="what"), *details),
        tag("td", one.severity),
        tag("td", formatting.at(one.since), class_="when"),
        tag("td", formatting.lasting(one.hours), still, class_="n"),
        tag("td", f"{one.gpus:,}", class_="n"),
    )


def _row(first: str, *numbers: str) -> Html:
    cells = (tag("td", number, class_="n") for number in numbers)
    return tag("tr", tag("th", first, scope="row"), *cells)


def _table(
    caption: str,
    columns: Sequence[_Column],
    rows: Sequence[Html],
    foot: Html | None = None,
    *,
    long: bool = False,
) -> Html:
    heads = (
        tag("th", name, scope="col", class_="n" if number else None) if name else tag("td", "")
        for name, number in columns
    )
    table = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *heads)),
        tag("tbody", *rows),
        Html("") if foot is None else tag("tfoot", foot),
    )
    return tag(
        "div",
        table,
        class_="wide long" if long else "wide",
        tabindex="0",
        role="region",
        aria_label=caption,
    )


# A user's name up to here stays on its line; a longer one may break anywhere.
_SHORT_NAME = 16


def _user(name: str) -> Html:
    return tag("td", name, class_="whole" if len(name) <= _SHORT_NAME else None)
