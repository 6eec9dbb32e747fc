"""`docs/idle-accuracy.md`: who is called idle, and why jobs ended, against what was true."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from accounting.efficiency.idle_reason import Idleness
from accounting.job_ending import EndCause

from ..judge.intervals import wilson
from .scenes import PEER, SCENES
from .spans import Row
from .underuse import HOURS, NODES

_BARS = {"precision": 0.99, "recall": 0.98, "why": 0.95}
_NOTHING = "nothing"
_Parts = Mapping[str, Sequence[Mapping[str, Any]]]


def section(results: Mapping[str, Any]) -> Iterator[str]:
    """Yield both sections, over every part that was played."""
    by_part: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for run in sorted(results["runs"].values(), key=lambda it: int(it["seed"])):
        by_part[run["part"]].append(run)
    if not by_part:
        return
    shown = next(part for part in ("report", *by_part) if part in by_part)
    yield from _of_idle(by_part, shown)
    yield ""
    yield from _of_endings(by_part, shown)


def of_underuse(kept: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield who is told that little of a GPU is used; None where that was not played."""
    yield "## Who is told that little of a GPU is used"
    yield ""
    if kept is None:
        yield "Not played yet: `python -m evaluation.holders.underuse 12`."
        return
    counts, seeds = Counter(kept["counts"]), kept["seeds"]
    late = counts["minutes late"] / max(counts["little, said"], 1)
    yield f"`python -m evaluation.holders.underuse {len(seeds)}`: {len(seeds)} fleets like the world of {NODES} nodes and {HOURS:g} hours, some of whose jobs use little in several ways, and others that only look so (`evaluation/holders/underuse.py`). Bars: precision 0.99, recall 0.97, no look-alike blamed. Spans of a GPU and a job; near a limit either answer is right. Detectors: commit `{kept['detectors'][:12]}`; fleet `{kept['fleet']}`. Seeds, from the hash of commit `{kept['commit'][:12]}`: {', '.join(map(str, seeds))}."
    yield ""
    yield "| precision | recall | minutes after the first moment at which it can be said, mean | look-alikes blamed |"
    yield "|---|---|---|---|"
    yield f"| {_wilson(counts['said, rightly'], counts['said'])} | {_wilson(counts['little, said'], counts['little'])} | {late:.1f} | {counts['look-alikes blamed']} of {counts['look-alikes']} |"
    names = [f"{key} {count}" for key, count in sorted(counts.items()) if ": " in key]
    yield ""
    yield f"By workload or scene: {', '.join(names) or 'nothing was missed or wrong'}."


def _of_idle(by_part: _Parts, shown: str) -> Iterator[str]:
    yield "## Who is blamed for idle GPUs"
    yield ""
    yield "What `gpuvigil idle` shows every five minutes, and to whom notices go. Both are computed by the product's code, from the analyzer's own incidents and the data that had reached the hub. The simulated fleets have each kind of fault once, 12 healthy nodes, and *scenes*: jobs that leave their GPUs idle in every way, and jobs that only look like it (`evaluation/holders/scenes.py`). The plan of the fleet is the truth. Seeds of the report are drawn from its commit."
    yield ""
    yield from _played(by_part)
    yield ""
    yield from _idle_table(by_part)
    yield ""
    yield f"Why GPUs were idle ({shown}), by spans. Spans that a fault or storage explains are included here; nobody is blamed for them, and the table above does not count them:"
    yield ""
    yield from _classes(_rows(by_part[shown]))
    yield ""
    yield f"Who must not be blamed ({shown}):"
    yield ""
    yield from _alike(_rows(by_part[shown]))
    yield ""
    yield from _idle_rules()


def _of_endings(by_part: _Parts, shown: str) -> Iterator[str]:
    yield "## Why jobs ended"
    yield ""
    yield "What `gpuvigil why` says a quarter of an hour after a job's end. The fleet's plan is the truth; Slurm's state and the exit code are derived from it (`evaluation/holders/endings.py`)."
    yield ""
    yield from _why_table(by_part)
    yield ""
    yield f"What was true, and what `gpuvigil why` said ({shown}):"
    yield ""
    yield from _confusion(_endings(by_part[shown]))


def _played(by_part: _Parts) -> Iterator[str]:
    yield "| part | fleets | seeds | fleet | this code | commit | command of the first |"
    yield "|---|---|---|---|---|---|---|"
    for part, runs in by_part.items():
        first, seeds = runs[0], [int(run["seed"]) for run in runs]
        cells = (
            part,
            len(runs),
            f"{min(seeds)} to {max(seeds)}" if len(seeds) > 1 else seeds[0],
            *(f"`{first[key]}`" for key in ("fleet", "code")),
            f"`{first['commit'][:12]}`" if first["commit"] else "commit not kept",
            f"`{first['command']}`",
        )
        yield f"| {' | '.join(map(str, cells))} |"


def _idle_table(by_part: _Parts) -> Iterator[str]:
    yield f"Idle spans of a GPU under one job (bars: precision {_BARS['precision']}, recall {_BARS['recall']}, no look-alike blamed), and notices by e-mail. The GPUs of a job are not independent, so the same is counted by job: a job is right when all its spans are."
    yield ""
    yield "| part | precision of spans | of jobs | recall of spans | of jobs | right class | minutes until it is shown, median, p95 | look-alike GPUs blamed | notices right | due notices given | minutes late, median, p95 |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for part, runs in by_part.items():
        idle = _rows(runs)
        own, due = idle["own"], idle["due"]
        cells = (
            part,
            _share(idle["blamed"]),
            _of_jobs(idle["blamed"]),
            _share(own),
            _of_jobs(own),
            _wilson(sum(it.gpus for _, it in own if it.why == it.said), _count(own)),
            _times(own),
            f"{_count(idle['alike']) - _hits(idle['alike'])} of {_count(idle['alike'])}",
            _share([(n, it) for n, it in idle["given"]], gpus=False),
            _share(due, gpus=False),
            _times(due),
        )
        yield f"| {' | '.join(cells)} |"


def _classes(idle: Mapping[str, Sequence[tuple[int, Row]]]) -> Iterator[str]:
    """Yield spans by what is true and what was reported most often in them."""
    counted: Counter[tuple[str, str]] = Counter()
    for _, it in (*idle["own"], *idle["excused"]):
        counted[it.why, it.said or _NOTHING] += it.gpus
    said = [one.value for one in Idleness if any(key[1] == one.value for key in counted)]
    said += [_NOTHING] if any(key[1] == _NOTHING for key in counted) else []
    yield f"| true | {' | '.join(said)} |"
    yield "|---" * (len(said) + 1) + "|"
    for one in Idleness:
        if any(key[0] == one.value for key in counted):
            cells = (str(counted[one.value, it] or "") for it in said)
            yield f"| {one.value} | {' | '.join(cells)} |"


def _alike(idle: Mapping[str, Sequence[tuple[int, Row]]]) -> Iterator[str]:
    yield "| GPUs of | jobs | GPUs | blamed |"
    yield "|---|---|---|---|"
    by_name: dict[str, list[tuple[int, Row]]] = defaultdict(list)
    for one in idle["alike"]:
        by_name[one[1].name].append(one)
    order = [*(scene.name for scene in SCENES), PEER]
    for name in sorted(by_name, key=lambda it: (order.index(it) if it in order else 99, it)):
        them = by_name[name]
        jobs = len({(fleet, it.job) for fleet, it in them})
        yield f"| {name} | {jobs} | {_count(them)} | {_count(them) - _hits(them)} |"


def _idle_rules() -> Iterator[str]:
    yield "- A GPU is idle when it has computed nothing for the last half hour (for a notice, the last hour). Within two minutes of that limit either answer is right. A span is right when its holder was the cause each time it was shown. Where a fault affects the GPU or its job as well, blaming nobody is also right, and the span is not required."
    yield "- A GPU whose counters all read 0 while it computes can only be recognised by its power. Where it draws less than 15 % of its limit, nobody can tell, and either answer is right. The same holds of a GPU that worked only while nothing of its node was measured."
    yield "- A notice is right when all of its GPUs were idle for as long as its stage says, because of their holder, and the holder is not exempt: a notebook, or a job that used half of its GPU time (within a tenth of that, either answer is right). A notice is due where all of this holds clearly for ten minutes."
    yield "- Nodes read whether their mounts answer, as collectors do by default. While storage does not answer one node of a job, the job's GPUs on other nodes stand still, too. Blaming their holder is wrong."
    yield "- Half of the jobs that a fault strikes hang: their other ranks wait until the fault is over. No job outlives a boot of its node; of one that does by the fleet's plan, either answer is right from then on."
    yield "- The analyzer makes one pass a minute here, and looks at events as they arrive."


def _why_table(by_part: _Parts) -> Iterator[str]:
    yield f"| part | right cause (bar {_BARS['why']}) | of jobs that failed | of those that a fault ended | program crashes blamed on hardware |"
    yield "|---|---|---|---|---|"
    failed = {
        one.value
        for one in (
            EndCause.PROGRAM,
            EndCause.HARDWARE,
            EndCause.NODE,
            EndCause.NETWORK,
            EndCause.MEMORY,
        )
    }
    for part, runs in by_part.items():
        counted = _endings(runs)
        faults = failed - {EndCause.PROGRAM.value}
        crashes = {key: n for key, n in counted.items() if key[0] == EndCause.PROGRAM.value}
        blamed = sum(n for key, n in crashes.items() if key[1] == EndCause.HARDWARE.value)
        cells = (
            part,
            _right(counted),
            _right({key: n for key, n in counted.items() if key[0] in failed}),
            _right({key: n for key, n in counted.items() if key[0] in faults}),
            f"{blamed} of {sum(crashes.values())}",
        )
        yield f"| {' | '.join(cells)} |"


def _confusion(counted: Mapping[tuple[str, str, str], int]) -> Iterator[str]:
    said = [one.value for one in EndCause if any(key[1] == one.value for key in counted)]
    yield f"| true | {' | '.join(said)} | wrong of |"
    yield "|---" * (len(said) + 2) + "|"
    for one in EndCause:
        mine = {key: n for key, n in counted.items() if key[0] == one.value}
        if mine:
            sums: Counter[str] = Counter()
            wrong: Counter[str] = Counter()
            for (_, told, name), n in mine.items():
                sums[told] += n
                wrong[name] += n if told != one.value else 0
            names = ", ".join(f"{name} {n}" for name, n in sorted(wrong.items()) if n)
            yield f"| {one.value} | {' | '.join(str(sums[it] or '') for it in said)} | {names} |"


def _rows(runs: Iterable[Mapping[str, Any]]) -> dict[str, list[tuple[int, Row]]]:
    """Return the rows by sort, each with the seed of its fleet."""
    found: dict[str, list[tuple[int, Row]]] = defaultdict(list)
    for run in runs:
        for values in run["idle"]:
            row = Row.from_json(values)
            found[row.sort].append((int(run["seed"]), row))
    return found


def _endings(runs: Iterable[Mapping[str, Any]]) -> Counter[tuple[str, str, str]]:
    found: Counter[tuple[str, str, str]] = Counter()
    for run in runs:
        for true, said, name, count in run["endings"]:
            found[true, said, name] += count
    return found


def _right(counted: Mapping[tuple[str, str, str], int]) -> str:
    return _wilson(sum(n for key, n in counted.items() if key[0] == key[1]), sum(counted.values()))


def _count(of: Iterable[tuple[int, Row]]) -> int:
    return sum(it.gpus for _, it in of)


def _hits(of: Iterable[tuple[int, Row]]) -> int:
    return sum(it.gpus for _, it in of if it.right)


def _share(of: Sequence[tuple[int, Row]], gpus: bool = True) -> str:
    if gpus:
        return _wilson(_hits(of), _count(of))
    return _wilson(sum(it.right for _, it in of), len(of))


def _of_jobs(of: Sequence[tuple[int, Row]]) -> str:
    right: dict[tuple[int, int], bool] = {}
    for fleet, it in of:
        right[fleet, it.job] = right.get((fleet, it.job), True) and it.right
    return _wilson(sum(right.values()), len(right))


def _times(of: Iterable[tuple[int, Row]]) -> str:
    minutes = [it.seconds / 60.0 for _, it in of if it.seconds is not None for _ in range(it.gpus)]
    return ", ".join(f"{np.percentile(minutes, it):.0f}" for it in (50, 95)) if minutes else "-"


def _wilson(hits: int, of: int) -> str:
    if not of:
        return "-"
    low, high = wilson(hits, of)
    return f"{hits / of:.3f} ({low:.3f} to {high:.3f}, {hits} of {of})"
