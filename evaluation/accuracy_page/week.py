"""The section of `docs/accuracy.md` on what one week of a site of 250 nodes sends."""

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accounting.chance import Interval, exact_rate
from gpuvigil.model import Severity
from gpuvigil.numbers_in_words import counted

from ..baselines import OURS
from ..fleets import WEEK_DAYS, WEEK_FAULTS, WEEK_NODES
from ..judge.measures import PER_NODE_DAYS, Rate, wrong_notes
from ..judge.tally import Tally
from ..plays import Play
from ..site_week.account import FAULT, NOTHING, USE
from ..site_week.sending import CHAT, PAGER

# What a site of this size should get at most in a week, and how long nothing critical may be wrong (ours).
MOST_MESSAGES, MOST_PAGES, MESSAGES_A_FAULT = 20.0, 3.0, 2.0
WRONG_WARNINGS, WRONG_NOTES, NODE_DAYS = 1.0, 20.0, 10_000.0


@dataclass(frozen=True, slots=True)
class Load:
    """The messages of some weeks, and the incidents that they are about."""

    messages: int
    incidents: int
    digests: int
    weeks: float

    @classmethod
    def of(cls, plays: Sequence[Play], channel: str) -> "Load":
        told = [one["sent"][channel] for one in plays]
        digests = sum(one["sent"]["digests"] for one in plays) if channel == CHAT else 0
        messages = sum(one[about] for one in told for about in (FAULT, USE, NOTHING))
        return cls(messages, sum(one["incidents"] for one in told), digests, len(plays))

    @property
    def value(self) -> float:
        return (self.messages + self.digests) / self.weeks

    @property
    def interval(self) -> Interval:
        """Incidents are independent, the messages about one are not; 95 %, Poisson."""
        each = self.messages / self.incidents if self.incidents else 1.0
        low, high = exact_rate(self.incidents, self.weeks)
        digests = self.digests / self.weeks
        return each * low + digests, each * high + digests


def section(plays: Sequence[Play]) -> Iterator[str]:
    """Yield the section, with a row for each goal and for each week."""
    if not plays:
        return
    node_days = sum(_ours(one).node_days for one in plays)
    cost = sum(one["cpu_seconds"] for one in plays) / node_days
    first, seeds = plays[0], ", ".join(str(one["seed"]) for one in plays)
    yield f"## What a week of {WEEK_NODES} nodes sends"
    yield ""
    yield f"`python -m evaluation.run week`: {len(plays)} fleets of {WEEK_NODES} nodes and {WEEK_DAYS:g} days ({node_days:,.0f} node-days), like the world, with {WEEK_FAULTS:g} faults per 1,000 node-days. Nodes are read once a minute. The messages are those of one chat channel and one pager as they come, without a route; nobody acknowledges, so reminders count. Ends and daily digests are messages too. A *page* is a new alert at the pager. Intervals are 95 % (Poisson; of messages, that of the incidents behind them). *Not certain*: the goal lies within the interval."
    yield ""
    yield "| goal | found | |"
    yield "|---|---|---|"
    for goal, found, verdict in _goals(plays, node_days):
        yield f"| {goal} | {found} | {verdict} |"
    yield ""
    yield "| week | faults | chat messages about them | about idle GPUs and programs | about nothing | digests | pages about faults | other pages |"
    yield "|---|---|---|---|---|---|---|---|"
    for number, one in enumerate(plays, 1):
        yield f"| {number} | {' | '.join(map(str, _cells(one['sent'])))} |"
    wrong = sum((Counter(_ours(one).wrong) for one in plays), Counter[str]())
    names = ", ".join(f"`{fault}` {count}" for fault, count in wrong.most_common())
    yield ""
    yield f"Wrong messages by fault: {names or 'none'}. A play takes {cost:.2f} s of CPU time a node-day. Detectors: commit `{first['detectors'][:12]}`; fleet `{first['fleet']}`; judge `{first['judge']}`. Seeds, from the hash of the commit: {seeds}."
    yield ""


def _ours(one: Play) -> Tally:
    return Tally.from_json(one["tallies"][OURS])


def _goals(plays: Sequence[Play], node_days: float) -> Iterator[tuple[str, str, str]]:
    ours = [_ours(one) for one in plays]
    for channel, most, what in (
        (CHAT, MOST_MESSAGES, "chat messages"),
        (PAGER, MOST_PAGES, "pages"),
    ):
        load = Load.of(plays, channel)
        yield (
            f"at most {most:g} {what} a week",
            _rate(load.value, load.interval),
            _verdict(load, most),
        )
    told = [count for one in plays for count in one["sent"][CHAT]["per_fault"]]
    middle = statistics.median(told) if told else None
    found = "-" if middle is None else f"{middle:g}, of {len(told)} faults with messages"
    within = "-" if middle is None else "met" if middle <= MESSAGES_A_FAULT else "missed"
    yield f"a median of {MESSAGES_A_FAULT:g} chat messages a fault", found, within
    critical = Rate(sum(one.false(Severity.CRITICAL) for one in ours), node_days)
    few = "met" if node_days >= NODE_DAYS else "none, in fewer than asked for"
    bound = f"{critical.count} in {node_days:,.0f}, per 1,000 below {critical.interval[1]:.2f}"
    what = f"no wrong critical in {NODE_DAYS:,.0f} node-days"
    yield what, bound, "missed" if critical.count else few
    rates = (
        (
            Rate(sum(one.false(Severity.WARNING) for one in ours), node_days),
            WRONG_WARNINGS,
            "warning",
        ),
        (wrong_notes(ours), WRONG_NOTES, "info"),
    )
    for rate, most, what in rates:
        if rate is not None and rate.value is not None:
            words = (
                f"at most {counted(int(most), f'wrong {what}')} per {PER_NODE_DAYS:,.0f} node-days"
            )
            yield words, f"{_rate(rate.value, rate.interval)}, {rate.count:,}", _verdict(rate, most)


def _verdict(found: Load | Rate, most: float) -> str:
    low, high = found.interval
    word = "met" if (found.value or 0.0) <= most else "missed"
    return f"{word}, not certain" if low <= most < high else word


def _rate(value: float, interval: Interval) -> str:
    return f"{value:.1f} ({interval[0]:.1f} to {interval[1]:.1f})"


def _cells(found: Mapping[str, Any]) -> tuple[int, ...]:
    chat, pages = found[CHAT], found[PAGER]
    messages = (chat[FAULT], chat[USE], chat[NOTHING])
    return (
        found["faults"],
        *messages,
        found["digests"],
        pages[FAULT],
        pages[USE] + pages[NOTHING],
    )
