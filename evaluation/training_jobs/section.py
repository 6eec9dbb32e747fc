"""The sections of `docs/accuracy.md` about steps and about healthy jobs, made from the results."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from accounting.jobs.bound import Bound
from gpuvigil.numbers_in_words import counted

from ..judge.intervals import wilson
from .fleets import (
    ASYMMETRIC,
    CHECKPOINTS,
    DEAD,
    GPUS,
    HOURS,
    NODES,
    STRAGGLERS,
    SYMMETRIC,
    UNEVEN,
)
from .ras import ASKED

# By what a job's programs report: their own work, steps without it, or nothing.
_GROUPS: Mapping[str, tuple[str, ...]] = {
    "its ranks' own work": ("own",),
    "steps alone": ("pauses", "steps"),
    "nothing": ("nothing",),
}
_HANGS = {
    "dead process": (DEAD, 15.0),
    "one rank stopped or stuck": (ASYMMETRIC, 75.0),
    "all ranks in a collective": (SYMMETRIC, None),
    "a checkpoint never written": (CHECKPOINTS, None),
}


def section(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the tables of stragglers, hangs, false reports on healthy jobs, and what bounds a job."""
    fleets = result["fleets"]
    node_days = sum(one["node_days"] for one in fleets)
    seeds = ", ".join(str(one["seed"]) for one in fleets)
    yield "## What steps add"
    yield ""
    yield f"`{result['command']}`: {len(fleets)} fleets of {NODES} nodes with {GPUS} GPUs and {HOURS:g} hours ({node_days:.0f} node-days) whose jobs [report their steps](steps.md), each program all of it, some or nothing. Seeds {seeds} are drawn from commit `{result['commit'][:12]}`; fleet `{result['fleet']}`. Detectors were tuned on other seeds of the same model; its step noise is assumed, not measured. {_not_used(fleets)} Intervals are 95 % (Wilson)."
    yield ""
    yield from _asked(fleets)
    yield ""
    yield from _stragglers(fleets)
    yield ""
    yield from _collectives(fleets)
    yield from _hangs(fleets)
    yield ""
    yield from _healthy(fleets)
    yield ""
    yield from _bounds(fleets)


def _not_used(fleets: Sequence[Any]) -> str:
    if any(it.get("asked", False) for it in _all(fleets, "faults")):
        return f"NCCL's RAS may be asked in {100.0 * ASKED:.0f} % of the jobs; PyTorch's dumps are not used here."
    return "NCCL's RAS and PyTorch's dumps are not used here."


def sound_section(result: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the section about reports on healthy jobs; `result` is None where no play is kept."""
    yield "## Healthy jobs"
    yield ""
    if result is None:
        yield "No play is kept. `python -m evaluation.healthy_jobs 1000` plays healthy jobs, most of them split unevenly, with uneven data or frequent pauses, until the uneven ones have 1,000 job-hours and all of them 10,000 pauses."
        return
    fleets = result["fleets"]
    node_days = sum(one["node_days"] for one in fleets)
    hears = (
        "read GPUs and nodes only"
        if not _read(fleets)
        else f"read GPUs, nodes, and NCCL Inspector's files of {100.0 * _read(fleets):.0f} % of the jobs"
    )
    yield f"`{result['command']}`: {counted(len(fleets), 'fleet')} of {HOURS:g} hours ({node_days:.0f} node-days) without a fault. Most of their jobs are split unevenly, have uneven data or pause often. The jobs' detectors {hears}. Seeds are drawn from commit `{(result['commit'] or 'gone')[:12]}`; fleet `{result['fleet']}`."
    yield ""
    yield from _table(_of_sound(fleets))
    yield ""
    yield from _healthy(fleets)
    if _read(fleets):
        yield ""
        yield f"If NCCL Inspector's files are read, ranks that were not slow were reported as last {_of_others(fleets)}."


def _read(fleets: Sequence[Any]) -> float:
    """Return the share of jobs whose collectives were read."""
    return max((one.get("read", 0.0) for one in fleets), default=0.0)


def _of_others(fleets: Iterable[Any]) -> str:
    """Say how often a rank that was not slow was reported as last to join collectives."""
    others = [it for it in (it for one in fleets for it in one.get("last", ())) if it["id"] is None]
    uneven = sum(it["workload"] in UNEVEN for it in others)
    return f"{counted(len(others), 'time')}, {uneven} of them in jobs split unevenly or with uneven data"


def _asked(fleets: Sequence[Any]) -> Iterator[str]:
    """Yield the targets set before anything was measured, and whether each is met."""
    yield from _table((*_of_slow(fleets), *_of_hung(fleets), *_of_well(fleets)))


def _table(bars: Iterable["_Bar"]) -> Iterator[str]:
    yield "| goal | found | |"
    yield "|---|---|---|"
    for asked, found, verdict in bars:
        yield f"| {asked} | {found} | {verdict} |"


_Bar = tuple[str, str, str]
_LESS = ("pauses", "steps", "nothing")


def _word(met: bool) -> str:
    return "met" if met else "missed"


def _of_slow(fleets: Sequence[Any]) -> Iterator[_Bar]:
    own: Sequence[str] = ("own",)
    for what, is_one, least in (
        ("report their own work", lambda it: it["tells"] in own, 0.95),
        (
            "report less, and NCCL Inspector is read",
            lambda it: it["tells"] in _LESS and it.get("read", False),
            0.95,
        ),
        (
            "report only steps or nothing, and NCCL Inspector is not read",
            lambda it: it["tells"] in _LESS and not it.get("read", False),
            0.85,
        ),
    ):
        f1 = _straggler_f1(fleets, is_one)
        if f1 is None:
            continue  # no play had such stragglers
        yield f"F1 of stragglers of {least:g} where ranks {what}", f"{f1:.2f}", _word(f1 >= least)
    slow = [it for it in _all(fleets, "faults") if it["kind"] in STRAGGLERS and it["tells"] in own]
    later = [it for it in slow if it["seconds"] is not None and not it["from_start"]]
    hits = sum(_is_onset(it) for it in later)
    what = "the onset of these within three steps or 60 s"
    yield f"all: {what}", share(hits, len(later)), _word(hits == len(later))


def _of_hung(fleets: Sequence[Any]) -> Iterator[_Bar]:
    dead = [it for it in _all(fleets, "faults") if it["kind"] in DEAD and it["tells"] != "nothing"]
    one = [it for it in _all(fleets, "faults") if it["kind"] in ASYMMETRIC and it["tells"] == "own"]
    for what, mine, limit in (
        ("a dead rank that reported steps, within 15 s", dead, 15.0),
        ("a rank that hangs and reported its own work, within 75 s", one, 75.0),
    ):
        hits = sum(it["loud"] is not None and it["loud"] <= limit for it in mine)
        yield f"all: {what}", share(hits, len(mine)), _word(hits == len(mine))
    both = [*dead, *one]
    hits = sum(it["culprit"] for it in both)
    yield (
        "0.95 of these with the right rank",
        share(hits, len(both)),
        _word(hits >= 0.95 * len(both)),
    )


def _of_well(fleets: Sequence[Any]) -> Iterator[_Bar]:
    yield from _of_sound(fleets)
    for what, groups in (("report their own work", ("own",)), ("report less", _LESS)):
        mine = [it for it in _all(fleets, "bounds") if it["tells"] in groups]
        hits = sum(it["said"] == it["truth"] for it in mine)
        met = hits >= 0.9 * len(mine)
        yield f"0.9 of what bounds jobs whose ranks {what}", share(hits, len(mine)), _word(met)


def _of_sound(fleets: Sequence[Any]) -> Iterator[_Bar]:
    total = totals(fleets)
    # Apart from slow ranks and hangs there are only notes.
    wrong = [it for it in _all(fleets, "wrong") if it["loud"]]
    hung = sum(not it["slow"] for it in wrong)
    pauses = total["pauses"]
    yield "no false hang in 10,000 pauses", f"{hung} in {pauses:.0f}", _none(hung, pauses, 10_000.0)
    of_work = sum(it["blames"] and it["workload"] in UNEVEN for it in wrong)
    hours = f"{of_work} in {total['hours']:.0f}, {total['uneven']:.0f} of them of such jobs"
    what = "no hardware blamed for uneven stages or data in 1,000 healthy job-hours"
    yield what, hours, _none(of_work, total["hours"], 1000.0)


def _none(hits: int, of: float, asked: float) -> str:
    """Return the verdict on no hits; without hits, "met" only when `of` reaches the number asked for."""
    return "missed" if hits else "met" if of >= asked else "none, in fewer than asked for"


def _is_onset(it: Mapping[str, Any]) -> bool:
    return bool(abs(it["onset"]) <= max(60.0, 3.0 * it["step"]))


def _straggler_f1(fleets: Sequence[Any], is_one: Callable[[Any], bool]) -> float | None:
    """Return the F1 of stragglers; None where there are none."""
    mine = [it for it in _all(fleets, "faults") if it["kind"] in STRAGGLERS and is_one(it)]
    found = sum(it["loud"] is not None for it in mine)
    words = [it for it in _all(fleets, "wrong") if it["slow"] and it["loud"]]
    false = sum(map(is_one, words))
    return 2.0 * found / (found + false + len(mine)) if mine else None


def totals(fleets: Sequence[Any]) -> dict[str, float]:
    """Return the job-hours and pauses of healthy jobs, and the hours of jobs with uneven stages or data among them."""
    found = {"hours": 0.0, "pauses": 0.0, "uneven": 0.0}
    for one in fleets:
        for name, it in one["healthy"].items():
            found["hours"] += it["hours"]
            found["pauses"] += it["pauses"]
            found["uneven"] += it["hours"] if name in UNEVEN else 0.0
    return found


def _all(fleets: Iterable[Any], what: str) -> list[Any]:
    return [it for one in fleets for it in one[what]]


def _stragglers(fleets: Sequence[Any]) -> Iterator[str]:
    yield "Stragglers are ranks that work 5 to 50 % longer, a third of them from the start of their job. *Named*: reported at all, notes included. *Precision*: of warnings that a GPU or a rank is slow, including those on healthy jobs. *Onset*: for those that became slow while the job ran, the reported time is within three steps or 60 s; if that was during a pause, or less than three steps before one, it is counted from the first steps after it. *Median s*: until the first report, notes included."
    yield ""
    yield "| the job reports | stragglers | named | warned | precision | F1 | F1 from the start | onset | median s |"
    yield "|---|---|---|---|---|---|---|---|---|"
    faults = [it for it in _all(fleets, "faults") if it["kind"] in STRAGGLERS]
    wrong = [it for it in _all(fleets, "wrong") if it["slow"] and it["loud"]]
    for name, group in _GROUPS.items():
        mine = [it for it in faults if it["tells"] in group]
        false = sum(it["tells"] in group for it in wrong)
        yield f"| {name} | {' | '.join(_of_stragglers(mine, false))} |"


def _of_stragglers(mine: Sequence[Any], false: int) -> Iterator[str]:
    found = [it for it in mine if it["loud"] is not None]
    named = [it for it in mine if it["seconds"] is not None]
    later = [it for it in named if not it["from_start"]]
    early = [it for it in mine if it["from_start"]]
    yield str(len(mine))
    yield share(len(named), len(mine))
    yield share(len(found), len(mine))
    yield share(len(found), len(found) + false)
    yield _f1(len(found), len(mine), false)
    yield _f1(sum(it["loud"] is not None for it in early), len(early), 0)
    seconds = sorted(it["seconds"] for it in later)
    yield share(sum(map(_is_onset, later)), len(later))
    yield f"{seconds[len(seconds) // 2]:.0f}" if seconds else "-"


def _f1(found: int, of: int, false: int) -> str:
    return f"{2.0 * found / (found + false + of):.2f}" if of else "-"


def _collectives(fleets: Sequence[Any]) -> Iterator[str]:
    """Yield what NCCL Inspector's files add; nothing for plays without such files."""
    last = [it for one in fleets for it in one.get("last", ())]
    if not last:
        return
    loud = {(one["seed"], it["id"]) for one in fleets for it in one["faults"] if it["loud"] is not None}  # fmt: skip
    slow = [(one["seed"], it) for one in fleets for it in one.get("last", ()) if it["id"]]
    told = sorted(it["seconds"] for _, it in slow if it["seconds"] is not None)
    alone = sum(it["seconds"] is not None and (seed, it["id"]) not in loud for seed, it in slow)
    median = f", half of them within {told[len(told) // 2]:.0f} s" if told else ""
    yield f"For four in ten jobs NCCL Inspector's files are read, with some all-reduces of each step. By the collector's rule a rank comes last if the others wait for it at two looks. This is a warning if it did not come last when the job was young, or if its GPU has a lower clock than the others or draws less power at its clock; otherwise it is a note, since the rank may have more to do. Of stragglers in these jobs {share(len(told), len(slow))} came last{median}; {alone} of them got no warning. Ranks that were not slow were reported as last {_of_others(fleets)}."
    yield ""


def _hangs(fleets: Sequence[Any]) -> Iterator[str]:
    yield "*In time*: within 15 s after a process died, and within 75 s after one rank stopped, or after the pause in which it stopped. If all ranks stop at once, the report comes after the longest usual pause of the job. *Culprit*: the right rank is named, if there is one."
    yield ""
    yield "| hang | the job reports | hangs | warned | in time | median s | slowest s | culprit |"
    yield "|---|---|---|---|---|---|---|---|"
    faults = _all(fleets, "faults")
    for name, (kinds, limit) in _HANGS.items():
        for told, group in _GROUPS.items():
            for asked, more in ((False, ""), (True, "; NCCL's RAS is asked")):
                mine = [
                    it
                    for it in faults
                    if it["kind"] in kinds
                    and it["tells"] in group
                    and it.get("asked", False) is asked
                ]
                if mine:
                    yield f"| {name} | {told}{more} | {' | '.join(_of_hangs(mine, limit))} |"


def _of_hangs(mine: Sequence[Any], limit: float | None) -> Iterator[str]:
    seconds = sorted(it["loud"] for it in mine if it["loud"] is not None)
    yield str(len(mine))
    yield share(len(seconds), len(mine))
    yield "-" if limit is None else share(sum(it <= limit for it in seconds), len(mine))
    yield f"{seconds[len(seconds) // 2]:.0f}" if seconds else "-"
    yield f"{seconds[-1]:.0f}" if seconds else "-"
    yield "-" if limit is None else share(sum(it["culprit"] for it in mine), len(mine))


def _healthy(fleets: Sequence[Any]) -> Iterator[str]:
    hours, pauses, uneven = (totals(fleets)[what] for what in ("hours", "pauses", "uneven"))
    wrong = [it for it in _all(fleets, "wrong") if it["loud"]]
    blamed = sum(it["blames"] for it in wrong)
    ranks = sum(it["slow"] and not it["blames"] for it in wrong)
    hung = sum(not it["slow"] for it in wrong)
    yield f"In {hours:.0f} healthy job-hours with {pauses:.0f} pauses (evaluations, checkpoints, stalled input), hardware was blamed {counted(blamed, 'time')} ({1000.0 * blamed / max(hours, 1e-9):.1f} in 1,000 job-hours), a rank {counted(ranks, 'time')}, and a hang was reported {counted(hung, 'time')} ({10000.0 * hung / max(pauses, 1e-9):.1f} in 10,000 pauses). There were {sum(not it['loud'] for it in _all(fleets, 'wrong'))} notes about any of these. In {uneven:.0f} of these hours the job was split unevenly or had uneven data."


def _bounds(fleets: Sequence[Any]) -> Iterator[str]:
    yield "What bounds a job, in hours of jobs for which this is known:"
    yield ""
    yield "| bound by | reports own work | reports steps | reports nothing |"
    yield "|---|---|---|---|"
    found = _all(fleets, "bounds")
    for bound in Bound:
        mine = [it for it in found if it["truth"] == bound.value]
        if mine:
            yield f"| {bound.value} | {' | '.join(_right(mine))} |"
    yield f"| all | {' | '.join(_right(found))} |"


def _right(hours: Sequence[Any]) -> Iterator[str]:
    for group in _GROUPS.values():
        mine = [it for it in hours if it["tells"] in group]
        yield share(sum(it["said"] == it["truth"] for it in mine), len(mine))


def share(hits: int, of: int) -> str:
    if not of:
        return "-"
    low, high = wilson(hits, of)
    return f"{hits / of:.2f} ({low:.2f} to {high:.2f}, {hits} of {of})"
