"""`evaluation/results.json`: what was played, a fleet a line, and what earlier parts came to."""

import fcntl
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .fingerprint import ROOT
from .judge.score import Tally, score

RESULTS = ROOT / "evaluation/results.json"
# What a set of detectors came to on a part.
Tallies = Mapping[str, Mapping[str, Sequence[Tally]]]


def read(path: Path = RESULTS) -> dict[str, Any]:
    """The results; empty when there are none yet."""
    if not path.exists():
        return {"history": [], "runs": {}}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def write(results: Mapping[str, Any], path: Path = RESULTS) -> None:
    """All of it or nothing; a run's numbers in one line."""
    past = ",\n".join(json.dumps(one, sort_keys=True) for one in results["history"])
    rows = ",\n".join(
        f"{json.dumps(key)}: {json.dumps(entry, sort_keys=True)}"
        for key, entry in sorted(results["runs"].items())
    )
    aside = path.with_suffix(".part")
    aside.write_text(f'{{"history": [\n{past}\n], "runs": {{\n{rows}\n}}}}\n', encoding="utf-8")
    os.replace(aside, path)


def add(entry: Mapping[str, Any], path: Path = RESULTS) -> None:
    """One fleet's entry beside the others of its part; who played it before stays in it.

    What another fleet, other detectors or another judge had made of the part becomes history.
    """
    with _alone(path):
        results = read(path)
        runs, own = results["runs"], (entry["fleet"], entry["judged"])
        others = {
            key: one
            for key, one in runs.items()
            if one["part"] == entry["part"] and (one["fleet"], one["judged"]) != own
        }
        if others:
            results["history"].append(_summary(list(others.values())))
            for key in others:
                del runs[key]
        key = f"{entry['part']}/{entry['seed']}"
        before = runs.get(key, {"tallies": {}})
        runs[key] = {**entry, "tallies": {**before["tallies"], **entry["tallies"]}}
        write(results, path)


def tallies(results: Mapping[str, Any]) -> Tallies:
    """By part and set of detectors, in the order of the seeds."""
    found: dict[str, dict[str, list[Tally]]] = defaultdict(lambda: defaultdict(list))
    for entry in sorted(results["runs"].values(), key=lambda it: int(it["seed"])):
        for name, one in entry["tallies"].items():
            found[entry["part"]][name].append(Tally.from_json(one))
    return found


def together(results: Mapping[str, Any], parts: Sequence[str]) -> Tallies:
    """By part and set, only fleets that everybody has played who played the part at all."""
    chosen: dict[str, Any] = {}
    for part in parts:
        entries = {key: it for key, it in results["runs"].items() if it["part"] == part}
        everybody = {name for it in entries.values() for name in it["tallies"]}
        chosen |= {key: it for key, it in entries.items() if everybody <= set(it["tallies"])}
    return tallies({"runs": chosen})


def _summary(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a part came to, in one line."""
    newest = entries[-1]
    found: dict[str, list[Tally]] = defaultdict(list)
    for entry in entries:
        for name, one in entry["tallies"].items():
            found[name].append(Tally.from_json(one))
    figures = {}
    for name, them in found.items():
        whole = score(them)
        claims = whole["claims"]
        figures[name] = {
            "node_days": whole["node_days"],
            "recall": whole["faults"]["recall"],
            "cause": whole["faults"]["cause"],
            "f1": whole["machines"]["f1"]["value"],
            "false_pages": claims["false_pages_per_1000_node_days"],
            "false_warnings": claims["false_by_severity"]["warning"],
        }
    return {
        **{key: newest[key] for key in ("part", "fleet", "judged", "commit")},
        "fleets": len(entries),
        "figures": figures,
    }


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Nobody else changes the results meanwhile."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
