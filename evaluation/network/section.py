"""The section of `docs/accuracy.md` on what switches add, and what only tuning reads."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..fingerprint import ROOT
from ..judge.intervals import wilson
from ..judge.matching import Verdict
from ..plays import COSTLY
from .fleets import GROUPS, HOURS
from .playing import BOTH, HOSTS

RESULT = ROOT / "evaluation/network.json"
_RIGHT = ("cause", "place", "severity", "one")


def section(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield what each analyzer found, as tables."""
    fleets = result["fleets"]
    node_days = sum(one["node_days"] for one in fleets)
    nodes = round(node_days / len(fleets) / (HOURS / 24.0))
    seeds = ", ".join(str(one["seed"]) for one in fleets)
    yield "## What switch counters add"
    yield ""
    yield f"`{result['command']}`: {len(fleets)} fleets of {nodes} nodes and {HOURS:g} hours ({node_days:.0f} node-days, {sum(one['roce'] for one in fleets)} of them RoCE), with many network faults. Each is played twice: to an analyzer that reads only hosts, and to one that also reads [switches](switches.md). Seeds {seeds} are drawn from commit `{result['commit'][:12]}`; fleet `{result['fleet']}`, judge `{result['judge']}`. *Costly*: found, of faults that cost a job at least {COSTLY:.0%} of its pace. Of the faults that were found: *right element*, the very port, cable (by either end) or switch; *right severity*; *says what it cannot see*, that the cause lies beyond a port where nothing is counted. *One incident*: exactly one, with the right cause. *Precision*: the share of warnings and criticals about ports that are about a real fault or its consequences; and the share that also has the right severity. Intervals are 95 % (Wilson)."
    yield ""
    yield "| fault of | reads | found | costly | right cause | right element | right severity | one incident | says what it cannot see | median s |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for group, kinds in GROUPS.items():
        for name in (HOSTS, BOTH):
            yield f"| {group} | {name} | {' | '.join(_cells(fleets, name, kinds))} |"
    yield ""
    yield "| reads | messages about ports | precision | severity included | wrong per node-day |"
    yield "|---|---|---|---|---|"
    for name in (HOSTS, BOTH):
        messages = [it for one in fleets for it in one[name]["messages"]]
        wrong = sum(it["verdict"] == Verdict.FALSE.value for it in messages)
        right = len(messages) - wrong
        yield f"| {name} | {len(messages)} | {_share(right, len(messages))} | {_as_grave(messages)} | {wrong / node_days:.2f} ({wrong}) |"
    yield ""
    yield (
        "Fault by fault, found of all, by hosts alone and with switches: "
        + ", ".join(
            f"{kind} {_hits(fleets, HOSTS, kind)} and {_hits(fleets, BOTH, kind)}"
            for kinds in GROUPS.values()
            for kind in kinds
        )
        + "."
    )


def _as_grave(messages: Sequence[Mapping[str, Any]]) -> str:
    known = [it["as_grave"] for it in messages if "as_grave" in it]
    return _share(sum(known), len(known))


def _cells(fleets: Sequence[Any], name: str, kinds: Sequence[str]) -> Iterator[str]:
    own = [it for one in fleets for it in one[name]["faults"] if it["kind"] in kinds]
    found = [it for it in own if _is_found(it)]
    costly = [it for it in own if it.get("lost", 0.0) >= COSTLY]
    yield _share(len(found), len(own))
    yield _share(sum(map(_is_found, costly)), len(costly))
    asked = {"cause": own, "place": found, "severity": found, "one": own, "abstained": found}
    for what, them in asked.items():
        # Older plays lack some of these fields.
        known = [it[what] for it in them if what in it]
        yield _share(sum(known), len(known))
    seconds = sorted(it["seconds"] for it in found)
    yield f"{seconds[len(seconds) // 2]:.0f}" if seconds else "-"


def _is_found(fault: Mapping[str, Any]) -> bool:
    return fault["seconds"] is not None


def _hits(fleets: Sequence[Any], name: str, kind: str) -> str:
    own = [it for one in fleets for it in one[name]["faults"] if it["kind"] == kind]
    return f"{sum(map(_is_found, own))} of {len(own)}"


def _share(hits: int, of: int) -> str:
    if not of:
        return "-"
    low, high = wilson(hits, of)
    return f"{hits / of:.2f} ({low:.2f} to {high:.2f}, {hits} of {of})"


def details(fleets: Sequence[Any]) -> Iterator[str]:
    """Yield the faults that were missed or reported twice, and the wrong messages, for whoever tunes detectors."""
    for one in fleets:
        yield f"seed {one['seed']}{', RoCE' if one['roce'] else ''}: {one['cpu_seconds']} s of CPU time"
        for name in (HOSTS, BOTH):
            for it in one[name]["faults"]:
                if not (_is_found(it) and all(it.get(what, True) for what in _RIGHT)):
                    yield f"  {name}: {it}"
            for m in one[name]["messages"]:
                if m["verdict"] == Verdict.FALSE.value:
                    yield f"  {name}: WRONG {m}"
