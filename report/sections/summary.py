"""The first two sentences: the verdict on a span, and what to do about it."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from accounting.usage import Usage
from gpuvigil.clock import duration
from gpuvigil.numbers_in_words import HOLDERS_UNKNOWN, SOME_UNKNOWN, capitalized, counted

from ..model import formatting
from ..model.content import Figure, Sentence, Trouble
from ..model.rounding import near
from .capacity import faults
from .coverage import Coverage
from .waste import Wasted

# Less than this share of the span, or of its GPU-hours, is too little to judge.
ENOUGH = 0.5
# From these shares on, a problem is what the reader must hear first.
FAULTS_FIRST_PERCENT = 5.0
IDLE_FIRST_PERCENT = 10.0
LOW_USE_PERCENT = 50.0
EMPTY_PERCENT = 50.0
_NOTHING_WRONG = "No allocated GPU was idle, and no hardware fault was found."
# This much of the end of a span may not be counted yet.
LAST_COUNTED = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The numbers that the verdict is about, already rounded."""

    usage: Usage
    cover: Coverage
    figures: dict[str, Figure]
    digits: int
    rows: Sequence[Wasted]  # holders, the most wasteful first
    troubles: Sequence[Trouble]
    said: Callable[[float], str] = str  # formats money
    team: str = ""  # the team of this edition
    seen: dict[str, list[str]] = field(
        default_factory=dict
    )  # what was said of each row that was read

    @property
    def idle_cost(self) -> str:
        """` (824 EUR)` for what the idle rule found; empty without a price."""
        found = [one.held.price * one.idle for one in self.rows if one.held.price is not None]
        said = f" ({self.said(sum(found))})" if found else ""
        return self.read("losses/allocated but idle", said)

    def read(self, row: str, said: str) -> str:
        """Record that `said` comes from the row, and return it."""
        self.seen.setdefault(row, []).append(said)
        return said

    def text(self, key: str) -> str:
        """Return a figure as text."""
        return self.read(f"figures/{key}", formatting.value(self.figures[key], self.digits))

    def hours(self, key: str) -> str:
        """Return a figure's GPU-hours without their unit."""
        said = formatting.hours(self.figures[key].value, self.digits)
        return self.read(f"figures/{key}", said)

    def against(self, key: str) -> str:
        """Return a figure's change, such as ` (+3 pts)`; "" without one."""
        said = formatting.change(self.figures[key], self.digits)
        return self.read(f"figures/{key}", f" ({said})") if said else ""

    def number(self, key: str) -> float:
        """Return a figure's value; 0 when there is none, which triggers no rule."""
        return self.figures[key].value or 0.0

    @property
    def lost(self) -> str:
        """GPU-hours lost to faults, as text."""
        return self.read("losses/broken", formatting.hours(self.fault_hours, self.digits))

    @property
    def fault_hours(self) -> float:
        return near(faults(self.usage.seconds) / 3600, self.digits)

    @property
    def known_hours(self) -> float:
        return self.usage.seconds.known / 3600

    @property
    def allocated_hours(self) -> float:
        return self.usage.seconds.allocated / 3600


def verdict(case: Case) -> tuple[Sentence, Sentence]:
    """Return the two sentences, the most important first; the first rule that holds decides."""
    first, second = next(say(case) for holds, say in _RULES if holds(case))
    return _resting(case, first), _resting(case, second)


def _resting(case: Case, text: str) -> Sentence:
    """Return the sentence with those of the rows read that it mentions."""
    small = text.lower()
    rows = (
        row for row, said in case.seen.items() if any(one.lower() in small for one in said if one)
    )
    return Sentence(text=text, rests_on=tuple(sorted(rows)))


def _nothing(case: Case) -> tuple[str, str]:
    if not case.usage.cluster:
        return (
            "No GPU is known to this hub, so there is nothing to report.",
            "Start 'gpuvigil collect' on a node with GPUs, or 'gpuvigil up --simulate 16' to see an example.",
        )
    return (
        "Nothing was counted in this span, so nothing can be said about how the GPUs were used.",
        "If gpuvigil ran then, the page Monitoring says whether collectors and the analyzer do.",
    )


def _too_little(case: Case) -> tuple[str, str]:
    counted = duration(case.usage.time)
    asked = duration(case.usage.end - case.usage.start)
    if case.cover.percent is not None and case.cover.percent < 100 * ENOUGH:
        known = formatting.percent(case.cover.percent)
        first = (
            f"Too little is known to judge this span: the state of only {known} of its GPU-hours."
        )
    else:
        first = f"Too little was counted to judge this span: {counted} of {asked}."
    if case.usage.seconds.known <= 0:
        return first, "No GPU's state was known in any of it."
    # Only of what is known, without ranges: the first sentence already says how little that is.
    single = {key: replace(one, low=None, high=None) for key, one in case.figures.items()}
    return first, f"In what is known, {_use(replace(case, figures=single))}."


def _all_free(case: Case) -> tuple[str, str]:
    gpus = counted(case.usage.gpus, "GPU")
    return (
        f"None of the {gpus} was allocated in this span.",
        f"{_rest(case)}",
    )


def _no_holders(case: Case) -> tuple[str, str]:
    energy = case.figures["energy_kwh"]
    used = f" They used {case.text(energy.key)}." if energy.value else ""
    first = SOME_UNKNOWN if case.usage.seconds.allocated > 0 else HOLDERS_UNKNOWN
    return first, (
        f"{counted(case.usage.gpus, 'GPU')} computed in"
        f" {formatting.percent(_share(case.usage.seconds.active, case.usage.seconds.installed))} of the"
        f" time that was counted.{used}"
    )


def _faults_first(case: Case) -> tuple[str, str]:
    lost = case.lost
    share = formatting.percent(_share(case.fault_hours, case.known_hours))
    worst = case.troubles[0] if case.troubles else None
    most = f"; the worst: {worst.title} on {worst.where}" if worst else ""
    if worst is not None:
        case.read(f"incident/{worst.id}", most)
    return (
        f"Faults cost most: {lost} GPU-hours ({share}) were lost to GPUs that could not be used{most}.",
        f"Of what could be known, {_use(case)}.",
    )


def _idle_first(case: Case) -> tuple[str, str]:
    idle = case.number("idle_held_gpu_hours")
    share = formatting.percent(_share(idle, case.allocated_hours))
    first = (
        f"{case.hours('idle_held_gpu_hours')} GPU-hours, {share} of what was allocated, "
        f"computed nothing{case.idle_cost}"
    )
    who = _most_of_idle(case)
    return f"{first}{f'; {who}' if who else ''}.", f"{capitalized(_use(case))}."


def _low_use(case: Case) -> tuple[str, str]:
    least = [
        one.held
        for one in case.rows
        if one.held.measured > 0
        and 100 * one.held.used < LOW_USE_PERCENT * one.held.measured
        and one.held.is_one
        and one.held.allocated >= 0.05 * case.allocated_hours
    ]
    first = (
        f"Only {case.text('used_of_allocated_percent')} of what was allocated was used"
        f"{case.against('used_of_allocated_percent')}."
    )
    if not least:
        return first, f"{capitalized(_rest(case))}"
    one = max(least, key=lambda held: held.measured - held.used)
    name = f"{one.holder} of {one.user}" if one.user else one.holder
    said = case.read(
        f"jobs/{one.holder}",
        f"{name}: {formatting.hours(near(one.allocated, case.digits), case.digits)} GPU-hours used to"
        f" {formatting.percent(100 * one.used / one.measured)}",
    )
    return first, f"The largest part of that is {said}."


def _empty(case: Case) -> tuple[str, str]:
    return (
        f"Only {case.text('allocated_percent')} of GPU-hours were allocated"
        f"{case.against('allocated_percent')}: there was room for much more work.",
        f"Of what was allocated, {case.text('used_of_allocated_percent')} was used"
        f"{case.against('used_of_allocated_percent')}; {formatting.small(_rest(case))}",
    )


def _plain(case: Case) -> tuple[str, str]:
    return f"{capitalized(_use(case))}.", _rest(case)


def _of_team(case: Case) -> tuple[str, str]:
    hours = case.read(
        "jobs", formatting.hours(near(case.allocated_hours, case.digits), case.digits)
    )
    idle = case.hours("idle_held_gpu_hours")
    return (
        f"{case.team} had {hours} GPU-hours allocated and used {case.text('used_of_allocated_percent')} of them"
        f"{case.against('used_of_allocated_percent')}.",
        f"{idle} of them were idle{case.idle_cost}{case.against('idle_held_gpu_hours')}.",
    )


def _use(case: Case) -> str:
    """Say how much was allocated and how much of that was used."""
    used = case.figures["used_of_allocated_percent"]
    if used.value is None:
        how = "how much of that was used was not measured"
    else:
        against = case.against(used.key)
        how = f"{case.text(used.key)} of that was used{against}"
    return (
        f"{case.text('allocated_percent')} of GPU-hours were allocated"
        f"{case.against('allocated_percent')} and {how}"
    )


def _rest(case: Case) -> str:
    """Say what went wrong, or that nothing did."""
    count = int(case.number("hardware_incidents"))
    said = []
    if case.number("idle_held_gpu_hours") > 0:
        said.append(
            f"{case.hours('idle_held_gpu_hours')} GPU-hours were allocated but idle{case.idle_cost}"
        )
    lost = case.lost
    if case.fault_hours > 0:
        said.append(f"{lost} were lost to faults")
    if count:
        verb = "was" if count == 1 else "were"
        found = case.read("figures/hardware_incidents", counted(count, "hardware incident"))
        said.append(f"there {verb} {found}{_still(case)}")
    if said and said[0].startswith(f"{lost} were lost"):
        said[0] = said[0].replace(" were", " GPU-hours were", 1)
    text = f"{capitalized(formatting.names(said))}." if said else _NOTHING_WRONG
    # A sentence that leaves a problem out is based on that problem's rows, too.
    for row in ("figures/idle_held_gpu_hours", "figures/hardware_incidents", "losses/broken"):
        case.read(row, text)
    for one in case.troubles:
        case.read(f"incident/{one.id}", text)
    return text


def _still(case: Case) -> str:
    still_open = sum(one.open for one in case.troubles)
    if not still_open:
        return ""
    return (
        ", still open" if case.number("hardware_incidents") == 1 else f", {still_open} still open"
    )


def _most_of_idle(case: Case) -> str:
    """Return who holds more than half of the idle hours, if they are few."""
    by_user: dict[str, float] = defaultdict(float)
    for one in case.rows:
        by_user[one.held.user or one.held.holder] += one.idle
    total = sum(by_user.values())
    if total <= 0:
        return ""
    first = sorted(by_user.items(), key=lambda item: (-item[1], item[0]))[:2]
    if first[0][1] >= 0.5 * total or len(first) == 1:
        first = first[:1]
    share = formatting.percent(100 * sum(hours for _, hours in first) / total)
    verb = "holds" if len(first) == 1 else "hold"
    said = f"{formatting.names([name for name, _ in first])} {verb} {share} of them"
    for name, _ in first:
        case.read(f"users/{name}", said)
    return said


def _share(part: float, whole: float) -> float:
    return 100 * part / whole if whole > 0 else 0.0


def _is_short(case: Case) -> bool:
    asked = case.usage.end - case.usage.start
    known = (case.cover.percent or 0.0) / 100
    return known < ENOUGH or case.usage.time < ENOUGH * asked - LAST_COUNTED


def _idle_is_much(case: Case) -> bool:
    idle = case.number("idle_held_gpu_hours")
    return _share(idle, case.allocated_hours) >= IDLE_FIRST_PERCENT


def _faults_are_much(case: Case) -> bool:
    return _share(case.fault_hours, case.known_hours) >= FAULTS_FIRST_PERCENT


def _is_little_used(case: Case) -> bool:
    used = case.figures["used_of_allocated_percent"].value
    return used is not None and used < LOW_USE_PERCENT


_RULES: Sequence[tuple[Callable[[Case], bool], Callable[[Case], tuple[str, str]]]] = (
    (lambda case: not case.usage.buckets or case.usage.seconds.installed <= 0, _nothing),
    (lambda case: bool(case.team), _of_team),
    (
        lambda case: case.usage.seconds.unattributed > 0 and case.usage.allocated_percent is None,
        _no_holders,
    ),
    (_is_short, _too_little),
    (_faults_are_much, _faults_first),
    (lambda case: case.usage.seconds.allocated <= 0, _all_free),
    (_idle_is_much, _idle_first),
    (_is_little_used, _low_use),
    (lambda case: case.number("allocated_percent") < EMPTY_PERCENT, _empty),
    (lambda case: True, _plain),
)
