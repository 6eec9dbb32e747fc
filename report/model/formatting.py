"""Formatting of a report's numbers for people, the same in every output."""

from datetime import datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING

from gpuvigil.clock import duration
from gpuvigil.config.tuning import tried_on_the_past
from gpuvigil.numbers_in_words import counted

from .calendar import Calendar, midnight

if TYPE_CHECKING:
    from .content import Day, Figure, Report, RuleWorth

NONE = "–"
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
# From here on kWh are shown as MWh; the rounding of energies makes that exact.
_MEGA_FROM = 1_000
# Between a number and its unit, so that they stay on one line.
GAP = "\u00a0"
DAY_HEADS = ("Day", "Allocated", "Used of allocated", "Allocated GPU-h", "Unavailable GPU-h")


def hours(value: float | None, digits: int) -> str:
    """Format GPU-hours without their unit: `19,400` or `12.5`."""
    return NONE if value is None else f"{value:,.{digits}f}"


def percent(value: float | None, digits: int = 0) -> str:
    """Format a percentage: `71 %`."""
    return NONE if value is None else f"{value:.{digits}f}{GAP}%"


def lasting(value: float | None) -> str:
    """Format the hours that something lasted: `8.3 h`, `168 h`."""
    return NONE if value is None else f"{_short(value, 1)}{GAP}h"


def _short(value: float, digits: int) -> str:
    """Format a number without trailing zero decimals."""
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def at(moment: datetime | None, zone: tzinfo = timezone.utc) -> str:
    """Format a time, by default in UTC: `Sat 21 Nov 00:10`."""
    if moment is None:
        return NONE
    local = moment.astimezone(zone)
    return f"{WEEKDAYS[local.weekday()]} {local.day} {local:%b %H:%M}"


def day(moment: datetime, zone: tzinfo = timezone.utc) -> str:
    """Format a day, by default in UTC: `14 Nov 2026`."""
    local = moment.astimezone(zone)
    return f"{local.day} {local:%b %Y}"


def span(start: datetime, end: datetime, calendar: Calendar) -> str:
    """Format a span: its name, its start and end by its zone's clock, and its length."""
    zone = calendar.zone
    name = calendar.name((start, end))
    whole_days = all(midnight(one.astimezone(zone).date(), zone) == one for one in (start, end))
    if not whole_days:
        last = f"{at(end, zone)} {end.astimezone(zone):%Y}"
        since = day(start, zone) if name else at(start, zone)
        said = f"{since} to {last} ({zone.key}, {duration(end - start)})"
        return f"{name}: {said}" if name else said
    last = day(end - timedelta(hours=1), zone)
    days = day(start, zone) if last == day(start, zone) else f"{day(start, zone)} to {last}"
    return (
        f"{name}: {days} ({zone.key})" if name else f"{days} ({zone.key}, {duration(end - start)})"
    )


def value(figure: "Figure", digits: int) -> str:
    """Format a figure's value with its unit: one number, or the range in which it lies."""
    if figure.low is not None and figure.high is not None:
        return _range(figure, figure.low, figure.high, digits)
    if figure.value is None:
        return NONE
    if figure.unit == "percent":
        return percent(figure.value, _tenths(figure.value))
    if figure.unit == "kWh":
        return energy(figure.value)
    if figure.unit == "GPU-hours":
        return f"{hours(figure.value, digits)}{GAP}GPU-h"
    return hours(figure.value, 0)


def _range(figure: "Figure", low: float, high: float, digits: int) -> str:
    if figure.unit == "percent":
        return f"{low:.0f}–{high:.0f}{GAP}%"
    return f"{hours(low, digits)}–{hours(high, digits)}{GAP}GPU-h"


def _tenths(value: float) -> int:
    """Return one decimal for a value that was not rounded to an integer, else none."""
    return 0 if value == round(value) else 1


def money(value: float) -> str:
    """Format an amount without its currency: `1,240`, `79` or `3.20`."""
    return f"{value:,.{0 if value >= 10 else 2}f}"


def energy(kwh: float) -> str:
    """Format an energy: `412.5 kWh`, `40 kWh` or `94.3 MWh`."""
    if kwh >= _MEGA_FROM:
        digits = 1 if kwh >= 100 * _MEGA_FROM else 2 if kwh >= 10 * _MEGA_FROM else 3
        return f"{_short(kwh / 1000, digits)}{GAP}MWh"
    return f"{_short(kwh, 1 if kwh >= 100 else 2)}{GAP}kWh"


def carbon(kilograms: float) -> str:
    """Format a mass of CO2e: `412 kg` or `3.4 t`."""
    if kilograms >= _MEGA_FROM:
        return f"{kilograms / 1000:,.{1 if kilograms >= 10 * _MEGA_FROM else 2}f}{GAP}t"
    return f"{kilograms:,.{0 if kilograms >= 10 else 2}f}{GAP}kg"


def change(figure: "Figure", digits: int) -> str:
    """Format a figure's change: `+3 pts`, `−2,300`, `no change`; "" when there is nothing to compare."""
    if figure.change is None:
        return ""
    if figure.change == 0:
        return "no change"
    sign, size = ("+" if figure.change > 0 else "−"), abs(figure.change)
    if figure.unit == "percent":
        return f"{sign}{size:.{_tenths(size)}f} {'pt' if size == 1 else 'pts'}"
    if figure.unit == "kWh":
        return f"{sign}{energy(size)}"
    return f"{sign}{hours(size, digits if figure.unit == 'GPU-hours' else 0)}"


def is_good(figure: "Figure") -> bool | None:
    """Return whether the change is for the better; None when it is neither."""
    if not figure.change or not figure.more_is:
        return None
    return (figure.change > 0) == (figure.more_is == "better")


def fleet(report: "Report") -> str:
    """Describe the fleet: `1,024 GPUs (H100) in 128 nodes`."""
    if not report.gpus:
        return "no GPU"
    names = sorted(report.models, key=lambda name: (-report.models[name], name))
    if len(names) == 1:
        kinds = f" ({names[0]})"
    else:
        kinds = f" ({', '.join(f'{report.models[n]:,} {n}' for n in names)})" if names else ""
    return f"{counted(report.gpus, 'GPU')}{kinds} in {counted(report.nodes, 'node')}"


def in_service(report: "Report") -> str:
    """Format the share in service: `94.1 % of GPU-hours in service`."""
    return f"{percent(report.capacity.in_service_percent, 1)} of GPU-hours in service"


def unjudged(report: "Report") -> str:
    """Say for how many GPU-hours it is unknown whether they were in service, and why; "" for none."""
    found = report.capacity
    if not found.unjudged_gpu_hours:
        return ""
    whole = hours(report.installed_gpu_hours, report.digits)
    part = hours(found.unjudged_gpu_hours, report.digits)
    return (
        f"Of {part} of {whole} GPU-hours it is not known what was out of service: the scheduler did"
        " not answer then, or they were counted late or by an earlier version."
    )


def day_cells(one: "Day", digits: int) -> tuple[str, ...]:
    """Return the cells of a day under `DAY_HEADS`."""
    return (
        one.day,
        percent(one.allocated_percent),
        percent(one.used_of_allocated_percent),
        hours(one.allocated_gpu_hours, digits),
        hours(one.unavailable_gpu_hours, digits),
    )


def names(found: list[str]) -> str:
    """Join names: `a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(found[:-1]), found[-1]] if len(found) > 1 else found)


def answers(one: "RuleWorth") -> tuple[str, ...]:
    """Return a rule's cells: noise, useful, incidents, those not judged, and where it is told."""
    counts = (one.noise, one.useful, one.incidents, one.unjudged)
    return (*(f"{count:,}" for count in counts), told_in(one))


def told_in(one: "RuleWorth") -> str:
    return "digest: on trial" if one.on_trial else "messages"


def noisiest(report: "Report") -> str:
    """Summarise the feedback in a sentence, naming the noisiest rule if any feedback was noise."""
    worst, many = report.rules[0], sum(one.noise + one.useful for one in report.rules)
    if not many:
        return "Nobody has said yet whether what is on trial is right."
    said = f"{many:,} answer{'' if many == 1 else 's'} to messages"
    if not worst.noise:
        return f"{said}, none of them noise."
    return (
        f"{said}. Noisiest: {worst.title}, {worst.noise:,} of {worst.noise + worst.useful:,} answers"
        f" called it noise. A route, a silence or a limit of {worst.rule} can spare people those."
        f"{_tried(worst.rule)}"
    )


def _tried(rule: str) -> str:
    command = tried_on_the_past(rule)
    return f" To see what another limit would have raised: {command}" if command else ""


def small(text: str) -> str:
    """Return the text for the middle of a sentence: lower-case first, except `Xid`, `GPU` and the like."""
    kept = text[1:2].isupper() or text.startswith(("Xid", "NVIDIA"))
    return text if kept else text[:1].lower() + text[1:]


def saves(gpu_hours: float, cost: float | None, currency: str) -> str:
    """Format what an action saves: `saves 48 GPU-hours a day (120 EUR)`."""
    worth = "" if cost is None else f" ({money(cost)} {currency})"
    return f"saves {gpu_hours:,.0f} GPU-hours a day{worth}"


def scattered(report: "Report") -> str:
    """Say how many hours were judged, and how much was scattered; "" when nothing was judged."""
    if not report.judged_hours:
        return ""
    said = (
        f"Not filled: by the multiprocessors' activity, in {report.judged_hours:,} hours that were judged,"
        " of jobs and users that had their GPUs alone and all the while."
    )
    if report.scattered_gpu_hours:
        said += (
            f" Free GPUs lay scattered on partly allocated nodes for"
            f" {hours(report.scattered_gpu_hours, report.digits)} GPU-hours."
        )
    return said
