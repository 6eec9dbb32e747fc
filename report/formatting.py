"""How the numbers of a report are written for people: the same in every output."""

from datetime import datetime, timedelta, timezone

from gpuvigil.clock import duration
from gpuvigil.config.tuning import tried_on_the_past
from gpuvigil.numbers_in_words import HOLDERS_UNKNOWN

from .content import Figure, Holder, Report

NONE = "–"
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
# From here on kWh are read as MWh; the grid of energies makes that exact.
_MEGA_FROM = 1_000
# Between a number and its unit: they stay on one line.
GAP = "\u00a0"


def hours(value: float | None, digits: int) -> str:
    """GPU-hours without their unit: `19,400` or `12.5`."""
    return NONE if value is None else f"{value:,.{digits}f}"


def nobody(report: Report) -> str:
    """Said in place of a table of holders that is empty."""
    figures = {one.key: one for one in report.figures}
    unknown = figures["allocated_percent"].value is None and report.installed_gpu_hours > 0
    return HOLDERS_UNKNOWN if unknown else "Nobody held a GPU in what was counted."


def no_idle(report: Report) -> str:
    """Said in place of a table of what the idle rule found that is empty."""
    figures = {one.key: one for one in report.figures}
    unknown = figures["idle_held_gpu_hours"].value is None and report.installed_gpu_hours > 0
    return HOLDERS_UNKNOWN if unknown else "The idle rule found no GPU that was held and idle."


def percent(value: float | None, digits: int = 0) -> str:
    """`71 %`."""
    return NONE if value is None else f"{value:.{digits}f}{GAP}%"


def lasting(value: float | None) -> str:
    """Hours that something lasted: `31.5 h`."""
    return NONE if value is None else f"{value:,.1f}{GAP}h"


def at(moment: datetime | None) -> str:
    """`Sat 21 Nov 00:10`, in UTC."""
    if moment is None:
        return NONE
    utc = moment.astimezone(timezone.utc)
    return f"{WEEKDAYS[utc.weekday()]} {utc.day} {utc:%b %H:%M}"


def day(moment: datetime) -> str:
    """`14 Nov 2026`."""
    utc = moment.astimezone(timezone.utc)
    return f"{utc.day} {utc:%b %Y}"


def span(start: datetime, end: datetime) -> str:
    """From when to when, in UTC, and how long that is."""
    if all((one.hour, one.minute, one.second) == (0, 0, 0) for one in (start, end)):
        last = end - timedelta(days=1)
        days = f"{day(start)} to {day(last)}" if last > start else day(start)
        return f"{days} (UTC, {duration(end - start)})"
    return f"{at(start)} to {at(end)} {end:%Y} (UTC, {duration(end - start)})"


def value(figure: Figure, digits: int) -> str:
    """A figure's value with its unit: one number, or the range in which it lies."""
    if figure.low is not None and figure.high is not None:
        return f"{figure.low:.0f}–{figure.high:.0f}{GAP}%"
    if figure.value is None:
        return NONE
    if figure.unit == "percent":
        return percent(figure.value)
    if figure.unit == "kWh":
        return energy(figure.value)
    if figure.unit == "GPU-hours":
        return f"{hours(figure.value, digits)}{GAP}GPU-h"
    return hours(figure.value, 0)


def underused(report: Report) -> str:
    """How much was not filled, of how many hours, and what lay scattered."""
    total = report.underused_total
    cost = "" if total.cost is None else f" ({money(total.cost)} {report.currency})"
    said = (
        f"{hours(total.gpu_hours, report.digits)} GPU-hours{cost} of busy holders were not filled, by the"
        f" multiprocessors' activity, in {report.underused_hours:,} hours that were judged: of holders"
        " that had their GPUs alone and all the while."
    )
    if report.scattered_gpu_hours:
        said += (
            f" Free GPUs lay scattered on partly held nodes for"
            f" {hours(report.scattered_gpu_hours, report.digits)} GPU-hours."
        )
    return said


def money(value: float) -> str:
    """An amount without its currency: `1,240` or `3.20`."""
    return f"{value:,.{0 if value >= 100 else 2}f}"


def energy(kwh: float) -> str:
    """`412.5 kWh` or `94.3 MWh`."""
    if kwh >= _MEGA_FROM:
        return f"{kwh / 1000:,.{1 if kwh >= 100 * _MEGA_FROM else 2}f}{GAP}MWh"
    return f"{kwh:,.{1 if kwh >= 10 else 2}f}{GAP}kWh"


def change(figure: Figure, digits: int) -> str:
    """`+3 pts`, `−2,300`, `no change`; empty where there is nothing to compare."""
    if figure.change is None:
        return ""
    if figure.change == 0:
        return "no change"
    sign, size = ("+" if figure.change > 0 else "−"), abs(figure.change)
    if figure.unit == "percent":
        return f"{sign}{size:.0f} {'pt' if size == 1 else 'pts'}"
    if figure.unit == "kWh":
        return f"{sign}{energy(size)}"
    return f"{sign}{hours(size, digits if figure.unit == 'GPU-hours' else 0)}"


def is_good(figure: Figure) -> bool | None:
    """Whether the change is for the better; None when it is neither."""
    if not figure.change or not figure.more_is:
        return None
    return (figure.change > 0) == (figure.more_is == "better")


def holder(one: Holder) -> str:
    """`job 1042`, or `processes` with their command."""
    return f"{one.holder} ({one.command})" if one.command else one.holder


def fleet(report: Report) -> str:
    """`1,024 GPUs (H100) in 128 nodes`."""
    if not report.gpus:
        return "no GPU"
    names = sorted(report.models, key=lambda name: (-report.models[name], name))
    if len(names) == 1:
        kinds = f" ({names[0]})"
    else:
        kinds = f" ({', '.join(f'{report.models[n]:,} {n}' for n in names)})" if names else ""
    return f"{counted(report.gpus, 'GPU')}{kinds} in {counted(report.nodes, 'node')}"


def in_service(report: Report) -> str:
    """`94.1 % of GPU-hours in service`."""
    return f"{percent(report.capacity.in_service_percent, 1)} of GPU-hours in service"


def unjudged(report: Report) -> str:
    """Of how much nobody could say whether it was in service, and why; empty for nothing."""
    found = report.capacity
    if not found.unjudged_gpu_hours:
        return ""
    whole = hours(report.installed_gpu_hours, report.digits)
    part = hours(found.unjudged_gpu_hours, report.digits)
    return (
        f"Of {part} of {whole} GPU-hours it is not known what was out of service: the scheduler did"
        " not answer then, or they were counted late or by an earlier version."
    )


def counted(number: int, thing: str) -> str:
    """`1 node`, `16 nodes`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def names(found: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(found[:-1]), found[-1]] if len(found) > 1 else found)


def noisiest(report: Report) -> str:
    """What the answers say of the rule that leads them; nothing was called noise where none did."""
    worst, answers = report.rules[0], sum(one.noise + one.useful for one in report.rules)
    said = f"{answers:,} answer{'' if answers == 1 else 's'} to messages"
    if not worst.noise:
        return f"{said}, none of them noise."
    return (
        f"{said}. Noisiest: {worst.title}, {worst.noise:,} of {worst.noise + worst.useful:,} answers"
        f" called it noise. A route, a silence or a limit of {worst.rule} can spare people those."
        f"{_tried(worst.rule)}"
    )


def _tried(rule: str) -> str:
    command = tried_on_the_past(rule)
    return f" What another limit would have raised says: {command}" if command else ""
