"""`docs/accuracy.md` from `evaluation/plays.jsonl`: every figure with its basis and its interval."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

from accounting.chance import Interval
from gpuvigil.numbers_in_words import counted

from ..baselines import ALWAYS, NEVER, OURS, SETS, TRIVIAL, variants
from ..fleets import DAYS, NODES
from ..judge import measures
from ..judge.matching import Outcome, Verdict
from ..judge.measures import BUDGETS, ENOUGH, FAULT_RATE, PER_NODE_DAYS, Point, Rate, Share
from ..judge.tally import Message, Tally
from ..plays import COSTLY, CROWDED, WEEK, Play, Tallies, for_tuning, newest, tallies
from .week import section as week_section

_WEEK = 7 * PER_NODE_DAYS
_SORTS = (("inferred", measures.inferred), ("names itself", measures.conformance))


def page(plays: Sequence[Play]) -> Iterator[str]:
    """Yield the lines of the whole document."""
    counted = newest(plays)
    yield "# Accuracy"
    yield ""
    if not counted:
        yield "`python -m evaluation.run release` measures what an operator gets from the detectors. It has not been run since the detectors, the simulated fleet or the judge last changed."
        yield ""
    else:
        ours = [Tally.from_json(one["tallies"][OURS]) for one in counted if OURS in one["tallies"]]
        same, before = tallies(counted), tallies(for_tuning(plays))
        yield from _first(ours, newest(plays, CROWDED))
        yield from _headline(same, before)
        yield from _many(newest(plays, CROWDED), before)
        yield from _details(same, before)
        yield from _conformance(same, before)
        yield from _week(ours)
        yield from _kinds(ours)
    yield from week_section(newest(plays, WEEK))
    yield from _how()
    yield from _played(plays, counted)


def chosen(name: str, before: Tallies) -> str:
    """Return the variant of a set that would be shipped: the one that does best on tuning seeds."""
    budget = BUDGETS[-1]
    return max(
        variants(name),
        key=lambda it: measures.recall_at(budget, [measures.shipped(before.get(it, ()))]),
    )


def ranked(found: Tallies) -> list[tuple[str, list[float]]]:
    """Return the sets by recall at the larger budget, then at the smaller, with silence last.

    Anyone may raise a constant alarm instead, so only silence is worth less than one.
    """
    constant = measures.shipped(found[ALWAYS])
    rows = [(ALWAYS, _recalls([constant]))]
    for name in SETS:
        if own := _every_point(found, name):
            rows.append((name, _recalls([*own, constant])))
    rows.sort(key=lambda row: (row[1][::-1], row[0] not in TRIVIAL), reverse=True)
    return [*rows, (NEVER, _recalls([measures.shipped(found[NEVER])]))]


def _recalls(of: Sequence[Point]) -> list[float]:
    return [measures.recall_at(budget, of) for budget in BUDGETS]


def _every_point(found: Tallies, name: str) -> list[Point]:
    """Return the points of all variants of a set that were played."""
    return [it for one in variants(name) if one in found for it in measures.points(found[one])]


def _first(ours: Sequence[Tally], crowded: Sequence[Play]) -> Iterator[str]:
    whole = measures.shipped(ours)
    node_days, found, wrong = whole.wrong.node_days, whole.found, whole.wrong
    many = measures.shipped([Tally.from_json(one["tallies"][OURS]) for one in crowded]).found
    heard = counted(wrong.count, "wrong message")
    if found.of >= ENOUGH:
        yield f"An operator of 1,000 nodes is told of {_percent(found)} of the faults that no sensor names, and reads {(wrong.value or 0.0) * 7:,.0f} wrong messages a week."
    elif many.of > found.of:
        yield f"gpuvigil finds {_percent(many)} of the faults that no sensor names, of {many.of:,} on clusters with many faults, and sent {heard} in {node_days:,.0f} node-days of clusters with as few as in life."
    else:
        yield f"In {node_days:,.0f} node-days an operator was told of {found.hits:,} of {found.of:,} faults that no sensor names, and read {heard}: too few to say more."
    yield ""
    yield f"Measured on simulated clusters ([what is modelled](fleet.md)), on seeds that were drawn after the code stood. **No real fault is in here**: no public data set has labelled GPU faults over time. A *message* is a warning or a critical; notes (info) are not counted, neither as found nor as wrong. The {node_days:,.0f} node-days had {counted(found.of, 'such fault')}. {_few(found)}".rstrip()
    yield ""


def _headline(same: Tallies, before: Tallies) -> Iterator[str]:
    yield "## Faults that must be inferred"
    yield ""
    yield f"*Recall at a budget* is the share of faults found, among those that no Xid, counter or setting names, if you accept {BUDGETS[0]:g} or {BUDGETS[1]:g} wrong messages per 1,000 node-days (about {BUDGETS[0]:g} or {BUDGETS[1]:g} a day on 1,000 nodes). Noisier detectors are thinned out until they fit the budget; *as shipped* is without one. *Wrong notes* are infos about no fault, which only the digest has; - where a play did not count them. {_of_others(same)}"
    yield ""
    yield f"| detectors | at {BUDGETS[0]:g} | at {BUDGETS[1]:g} | found as shipped | wrong per 1,000 node-days | wrong notes per 1,000 |"
    yield "|---|---|---|---|---|---|"
    for name, recalls in ranked(same):
        of = _every_point(same, name)
        own = same[chosen(name, before) if name in SETS else name]
        whole = measures.shipped(own)
        cells = (
            *(
                _recall(recall, None if name in TRIVIAL else measures.interval_at(budget, of))
                for budget, recall in zip(BUDGETS, recalls, strict=True)
            ),
            _share(whole.found),
            _rate(whole.wrong),
            _rate(measures.wrong_notes(own)),
        )
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""
    yield "*Always alarm*, an alarm on every node every quarter of an hour, is what chance achieves. The interval of recall at a budget combines the worse and the better ends of two intervals, of recall and of wrong messages, so it is wider than 95 %."
    yield ""
    yield from _curve(same)


def _of_others(same: Tallies) -> str:
    """Say by which rules others play, or that none of them has played."""
    if not _others(same):
        return "No other tool has played these fleets: `python -m evaluation.run release` has every tenth played by the others, too."
    return "Other tools use their own published rules; estimators use the limits that did best on tuning seeds. Others play about a tenth of the fleets, so their intervals are wider."


def _others(same: Tallies) -> list[str]:
    """Return the sets beside ours that have played."""
    return [it for it in SETS if it != OURS and any(variant in same for variant in variants(it))]


def _curve(same: Tallies) -> Iterator[str]:
    """Yield the recall of each set as more wrong messages are allowed."""
    steps = (1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)
    yield f"| recall at wrong messages per 1,000 node-days | {' | '.join(f'{it:g}' for it in steps)} |"
    yield "|---|" + "---|" * len(steps)
    for name in SETS:
        if of := _every_point(same, name):
            values = (f"{measures.recall_at(step, of):.2f}" for step in steps)
            yield f"| {name} | {' | '.join(values)} |"
    yield ""


def _details(same: Tallies, before: Tallies) -> Iterator[str]:
    yield "## What the messages are worth"
    yield ""
    yield f"The same faults, as shipped. *One incident*: there was exactly one, with the right cause. *Precision*: of warnings and criticals together, and of criticals alone, at {FAULT_RATE:g} such faults per 1,000 node-days. Delays are seconds from the first sign to the message."
    yield ""
    yield "| detectors | right cause | right in its first words | one incident | precision | of criticals | median s | p95 s |"
    yield "|---|---|---|---|---|---|---|---|"
    for name in SETS:
        own = same.get(chosen(name, before), ())
        if not own:
            continue
        faults = measures.inferred(own)
        critical, whole = measures.points(own)
        cells = (
            _share(_of(faults, [it.found and it.cause for it in faults])),
            _share(_of(faults, [it.found and it.named_at_first for it in faults])),
            _share(_of(faults, [it.exactly_one for it in faults])),
            *(_precision(it) for it in (whole, critical)),
            *(_number(measures.seconds(faults, it)) for it in (50, 95)),
        )
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""


def _conformance(same: Tallies, before: Tallies) -> Iterator[str]:
    yield "## Faults that name themselves"
    yield ""
    yield "An Xid, a counter or a setting names these faults, so finding them is conformance, not detection. *Noted*: reported in the digest (info) only."
    yield ""
    yield "| detectors | found | noted | right cause | one incident | median s |"
    yield "|---|---|---|---|---|---|"
    for name in SETS:
        faults = measures.conformance(same.get(chosen(name, before), ()))
        if not faults:
            continue
        cells = (
            _share(measures.found(faults)),
            _share(_of(faults, [not it.found and it.told == "info" for it in faults])),
            _share(_of(faults, [it.cause for it in faults])),
            _share(_of(faults, [it.exactly_one for it in faults])),
            _number(measures.seconds(faults, 50)),
        )
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""


def _week(ours: Sequence[Tally]) -> Iterator[str]:
    """Yield all messages that would have been read, by day; equal messages share a line."""
    fleets = ours[: round(_WEEK / (NODES * DAYS))]
    node_days = sum(one.node_days for one in fleets)
    yield "## A week of messages"
    yield ""
    yield f"All messages that somebody on call for 1,000 nodes would have read in {node_days / PER_NODE_DAYS:.1f} days ({len(fleets)} fleets, {PER_NODE_DAYS / NODES:g} of them side by side)."
    yield ""
    yield "| day | message | | about |"
    yield "|---|---|---|---|"
    days: dict[int, list[Message]] = defaultdict(list)
    for number, one in enumerate(fleets):
        before = number // round(PER_NODE_DAYS / NODES) * DAYS
        for it in one.messages:
            days[1 + int(before + timedelta(seconds=it.seconds) / timedelta(days=1))].append(it)
    for day in sorted(days):
        lines = Counter((it.severity, it.title, _MARKS[it.verdict], it.about) for it in days[day])
        for (severity, title, mark, about), count in sorted(lines.items()):
            times = f" ({count} times)" if count > 1 else ""
            yield f"| {day} | {severity}: {title.replace('|', '/')}{times} | {mark} | {about} |"
    missed = Counter(it.fault for it in measures.inferred(fleets) if not it.found)
    names = ", ".join(f"{kind} {count}" for kind, count in missed.most_common())
    yield ""
    yield f"Not found, among faults that must be inferred: {names or 'none'}."
    yield ""


_MARKS = {
    Verdict.RIGHT.value: "right",
    Verdict.OTHER.value: "right node, other cause",
    Verdict.SYMPTOM.value: "follows from it",
    Verdict.ECHO.value: "already over",
    Verdict.FALSE.value: "**wrong**",
}


def _kinds(ours: Sequence[Tally]) -> Iterator[str]:
    yield f"## Fault by fault: {OURS}"
    yield ""
    yield from _by_kind(ours)
    wrong = sum((Counter(one.wrong) for one in ours), Counter[str]())
    names = ", ".join(f"`{fault}` {count}" for fault, count in wrong.most_common())
    yield ""
    yield f"Wrong messages by fault: {names or 'none'}."
    yield ""


def _by_kind(ours: Sequence[Tally]) -> Iterator[str]:
    yield "| fault | found | right cause | one incident | median s |"
    yield "|---|---|---|---|---|"
    for title, of in _SORTS:
        faults = of(ours)
        for kind in sorted({it.fault for it in faults}):
            own = [it for it in faults if it.fault == kind]
            yield f"| {kind} ({title}) | {' | '.join(_outcomes(own, _short))} |"


def _outcomes(faults: Sequence[Outcome], written: Callable[[Share], str]) -> tuple[str, ...]:
    """Return what became of some faults: found, right cause, one incident, and the median of the seconds."""
    return (
        written(measures.found(faults)),
        written(_of(faults, [it.cause for it in faults])),
        written(_of(faults, [it.exactly_one for it in faults])),
        _number(measures.seconds(faults, 50)),
    )


def _many(plays: Sequence[Play], before: Tallies) -> Iterator[str]:
    """Yield how many of hundreds of faults were found, in fleets that have far more than the world."""
    if not plays:
        return
    ours = [Tally.from_json(one["tallies"][OURS]) for one in plays]
    node_days = sum(one.node_days for one in ours)
    yield "## Recall on many faults"
    yield ""
    yield f"Clusters as in life have too few faults to measure a share. These {len(ours)} fleets of {NODES} nodes and one day have the same nodes, jobs and look-alikes, but a hundred times as many faults, and more of them must be inferred. They show how many faults are found and how well they are named. They do not show how often a message is wrong, since no real cluster is like them."
    yield ""
    yield "| | found | right cause | one incident | median s |"
    yield "|---|---|---|---|---|"
    for title, of in _SORTS:
        yield f"| {title} | {' | '.join(_outcomes(of(ours), _share))} |"
    if costly := _costly(plays):
        yield f"| inferred, and costs a job {COSTLY:.0%} of its pace or more | {' | '.join(_outcomes(costly, _share))} |"
    yield ""
    yield from _by_kind(ours)
    yield ""
    yield from _beside(plays, before)
    first = plays[0]
    seeds = ", ".join(str(one["seed"]) for one in plays)
    cost = sum(one["cpu_seconds"] for one in plays) / node_days
    yield f"`python -m evaluation.run crowded`, {node_days:,.0f} node-days, {cost:.2f} s of CPU time each. Detectors: commit `{first['detectors'][:12]}`; fleet `{first['fleet']}`; judge `{first['judge']}`. Seeds, from the hash of the commit: {seeds}."
    yield ""


def _beside(plays: Sequence[Play], before: Tallies) -> Iterator[str]:
    """Yield what others find of the same faults, on the fleets that they have played too; without any, what costs nothing."""
    both = [one for one in plays if _others(tallies([one]))] or plays
    same = tallies(both)
    names = (OURS, *_others(same), *(it for it in TRIVIAL if it in same))
    yield f"What others find on {len(both)} of these fleets. *Messages* are all warnings and criticals, right or not. *Always alarm* and *never alarm* show what needs no detector."
    yield ""
    yield "| detectors | inferred: found | right cause | one incident | names itself: found | messages a node-day |"
    yield "|---|---|---|---|---|---|"
    for name in names:
        own = same[chosen(name, before) if name in SETS else name]
        found = _outcomes(measures.inferred(own), _share)[:3]
        itself = _share(measures.found(measures.conformance(own)))
        sent = sum(sum(it.values()) for one in own for it in one.counts.values())
        days = sum(one.node_days for one in own)
        yield f"| {name} | {' | '.join(found)} | {itself} | {sent / days:.2f} |"
    yield ""


def _costly(plays: Sequence[Play]) -> list[Outcome]:
    """Return the inferred faults that cost a job much of its pace, of plays that say so."""
    found = []
    for one in plays:
        lost = one.get("lost", {})
        faults = measures.inferred([Tally.from_json(one["tallies"][OURS])])
        found += [it for it in faults if lost.get(it.id, 0.0) >= COSTLY]
    return found


def _how() -> Iterator[str]:
    yield "## How it is measured"
    yield ""
    yield "- A fault is *found* if a warning or critical about its machine begins between its first sign and its end. Each time an incident opens or returns counts as one message. Faults [on trial](alerts.md#verdicts-on-trial) are in the digest and send none. A message that begins within half an hour after a fault's end is neither right nor wrong."
    yield "- `evaluation/judge/inferred.py` lists which kinds name themselves. Hidden faults, which no number shows because nothing ran on the GPU, do not count."
    yield "- A message is *wrong* if there was no fault. That includes look-alikes: reboots, drains, driver rollouts, late data, Xids caused by programs."
    yield "- Incidents about idle GPUs and programs' errors (Xid 13, 31, 43, 45) are not judged here, for any tool."
    yield f"- `evaluation/judge/measures.py` says why the budgets are {BUDGETS[0]:g} and {BUDGETS[1]:g}. Intervals are 95 % (Wilson for shares, Poisson for rates). A share of fewer than {ENOUGH} faults is marked *too few*."
    yield "- The rules of other tools run in the analyzer's passes on the same data, and their alarms last as long as the fault. `evaluation/baselines/rules.py` has the source of each."
    yield ""


def _played(plays: Sequence[Play], counted: Sequence[Play]) -> Iterator[str]:
    yield "## What was played"
    yield ""
    if counted:
        last = counted[-1]
        days = sum(next(iter(one["tallies"].values()))["node_days"] for one in counted)
        seeds = ", ".join(str(one["seed"]) for one in counted)
        cost = sum(one["cpu_seconds"] for one in counted) / days
        yield f"{len(counted)} fleets of {NODES} nodes and {DAYS:g} days, with {cost:.1f} s of CPU time a node-day for all detectors together. Detectors: commit `{last['detectors'][:12]}`; fleet `{last['fleet']}`; judge `{last['judge']}`. Seeds: {seeds}. They are drawn from the hash of the commit, so nobody could know them before; a working tree with changes is refused."
        yield ""
    yield f"All plays are in `evaluation/plays.jsonl`, and none is ever removed. {len(for_tuning(plays))} more were played for tuning, or with detectors, a fleet or a judge that have changed since; their seeds are known now and serve only for tuning. In CI, [dense fleets](development.md#where-to-change-what) test whether a change makes the detectors worse."


def _of(faults: Sequence[Outcome], which: Sequence[bool]) -> Share:
    return Share(sum(which), len(faults))


def _recall(value: float, interval: Interval | None) -> str:
    return (
        f"{value:.2f}"
        if interval is None
        else f"{value:.2f} ({interval[0]:.2f} to {interval[1]:.2f})"
    )


def _few(share: Share) -> str:
    return f"Fewer than {ENOUGH} faults are too few to rely on. " if share.of < ENOUGH else ""


def _percent(share: Share) -> str:
    return "an unknown share" if share.value is None else f"{100.0 * share.value:.0f} %"


def _share(share: Share) -> str:
    """Format a share as `0.75 (0.41 to 0.93, 6 of 8, too few)`."""
    few = ", too few" if share.of < ENOUGH else ""
    if share.value is None:
        return f"-{few}"
    low, high = share.interval
    return f"{share.value:.2f} ({low:.2f} to {high:.2f}, {share.hits} of {share.of}{few})"


def _short(share: Share) -> str:
    """Format a share as `6 of 8 (0.41 to 0.93)`: single kinds are always few."""
    low, high = share.interval
    return f"{share.hits} of {share.of} ({low:.2f} to {high:.2f})"


def _rate(rate: Rate | None) -> str:
    """Format a rate as `62.5 (12.9 to 182.7, 3)`; None was not counted."""
    if rate is None:
        return "-"
    low, high = rate.interval
    return (
        "-"
        if rate.value is None
        else f"{rate.value:,.1f} ({low:,.1f} to {high:,.1f}, {rate.count:,})"
    )


def _precision(point: Point) -> str:
    found = measures.precision_at(FAULT_RATE, point)
    if found is None:
        return "-"
    value, (low, high) = found
    return f"{value:.2f} ({low:.2f} to {high:.2f})"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
