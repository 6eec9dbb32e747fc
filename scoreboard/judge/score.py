"""Counts of one fleet that add up, and the figures that are made of them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

import numpy as np

from collector.simulator.fleet import Truth
from gpuvigil.model import Severity, Subject

from ..names import names
from .claims import Claim
from .intervals import bootstrap_f1, exact_rate, wilson
from .matching import Outcome, Units, Verdict, false_pages, judge, units

# What large clusters saw, in faults per 1,000 node-days: Meta, "Revisiting Reliability" (2.34 and
# 6.50 on its two clusters); Llama 3 (3.79).
NATURAL_RATES = (2.0, 4.0, 7.0)
PER_NODE_DAYS = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """One set of detectors on one fleet."""

    node_days: float
    outcomes: tuple[Outcome, ...] = ()
    verdicts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # by fault claimed
    named: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # by kind: right, of said
    units: Units = field(default_factory=Units)
    false_pages: int = 0
    false: Mapping[str, int] = field(default_factory=dict)  # false claims by severity

    def to_json(self) -> dict[str, Any]:
        """Plain values; an outcome is a row in the order of `Outcome`."""
        return {
            "node_days": self.node_days,
            "outcomes": [list(asdict(outcome).values()) for outcome in self.outcomes],
            "verdicts": {name: dict(them) for name, them in sorted(self.verdicts.items())},
            "named": {name: list(them) for name, them in sorted(self.named.items())},
            "units": asdict(self.units),
            "false_pages": self.false_pages,
            "false": dict(sorted(self.false.items())),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Tally":
        fields = list(Outcome.__dataclass_fields__)
        return cls(
            node_days=values["node_days"],
            outcomes=tuple(
                Outcome(**dict(zip(fields, row, strict=True))) for row in values["outcomes"]
            ),
            verdicts=values["verdicts"],
            named={name: (them[0], them[1]) for name, them in values["named"].items()},
            units=Units(**values["units"]),
            false_pages=values["false_pages"],
            false=values["false"],
        )


def tally(
    truths: Sequence[Truth],
    claims: Sequence[Claim],
    nodes: Sequence[Subject],
    span: tuple[datetime, datetime],
) -> Tally:
    """What a set of detectors did on a fleet; a fault that nobody can find is none of theirs."""
    truths = [truth for truth in truths if not truth.hidden]
    outcomes, judged = judge(truths, claims)
    kinds = {truth.id: truth.fault for truth in truths}
    verdicts: dict[str, Counter[str]] = defaultdict(Counter)
    said: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for one in judged:
        verdicts[one.claim.fault][one.verdict.value] += 1
        if one.verdict is Verdict.RIGHT:
            right[kinds[one.truth or ""]] += 1
            said[kinds[one.truth or ""]] += 1
        elif one.verdict is not Verdict.ECHO:
            said.update(names(one.claim.fault, one.claim.title))
    days = (span[1] - span[0]).total_seconds() / 86_400.0
    return Tally(
        node_days=days * len(nodes),
        outcomes=tuple(outcomes),
        verdicts=verdicts,
        named={kind: (right[kind], said[kind]) for kind in said},
        units=units(truths, claims, nodes, span),
        false_pages=false_pages(judged),
        false=Counter(one.claim.severity.value for one in judged if one.verdict is Verdict.FALSE),
    )


def score(tallies: Sequence[Tally]) -> dict[str, Any]:
    """Every figure, each with what it was made of and its 95 % interval."""
    outcomes = [outcome for one in tallies for outcome in one.outcomes]
    node_days = sum(one.node_days for one in tallies)
    verdicts: Counter[str] = Counter()
    for one in tallies:
        for them in one.verdicts.values():
            verdicts.update(them)
    alarms, pages = verdicts[Verdict.FALSE.value], sum(one.false_pages for one in tallies)
    claims = sum(verdicts.values())
    return {
        "faults": _found(outcomes),
        "claims": {
            "verdicts": {verdict.value: verdicts[verdict.value] for verdict in Verdict},
            "precision": _share(claims - alarms, claims),
            "false_per_1000_node_days": _rate(alarms, node_days),
            "false_by_severity": {
                severity.value: _rate(
                    sum(one.false.get(severity.value, 0) for one in tallies), node_days
                )
                for severity in Severity
            },
            "false_pages_per_1000_node_days": _rate(pages, node_days),
        },
        "machines": _machines(tallies),
        "natural": [_natural(rate, outcomes, alarms, node_days) for rate in NATURAL_RATES],
        "kinds": {
            kind: _kind(kind, outcomes, tallies) for kind in sorted({o.fault for o in outcomes})
        },
        "node_days": node_days,
    }


def _found(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Recall and what was said of the faults; causes, places and actions are shares of all."""
    seconds = [o.seconds for o in outcomes if o.seconds is not None]
    of = len(outcomes)
    return {
        "recall": _share(len(seconds), of),
        "cause": _share(sum(o.cause for o in outcomes), of),
        "place": _share(sum(o.place for o in outcomes), of),
        "action": _share(sum(o.action for o in outcomes), of),
        "severity": _share(sum(o.severity for o in outcomes), of),
        "seconds_median": None if not seconds else float(np.median(seconds)),
        "seconds_p95": None if not seconds else float(np.percentile(seconds, 95)),
        "incidents_per_found_fault": None
        if not seconds
        else sum(o.incidents for o in outcomes if o.found) / len(seconds),
    }


def _kind(kind: str, outcomes: Iterable[Outcome], tallies: Iterable[Tally]) -> dict[str, Any]:
    own = [outcome for outcome in outcomes if outcome.fault == kind]
    counts = [one.named.get(kind, (0, 0)) for one in tallies]
    right, said = (sum(column) for column in zip(*counts, strict=True))
    values = _found(own)
    precision = _share(right, said)
    recall, share = values["cause"]["value"], precision["value"]
    f1 = 2 * recall * share / (recall + share) if recall and share else 0.0
    return {**values, "precision": precision, "f1_by_name": f1}


def _machines(tallies: Sequence[Tally]) -> dict[str, Any]:
    """Per machine and window of a quarter of an hour, as Minder is judged."""
    total = sum((one.units for one in tallies), Units())
    tp, fn, fp = total.found, total.missed, total.alarmed
    counts = [(one.units.found, one.units.alarmed, one.units.missed) for one in tallies]
    return {
        "precision": _share(tp, tp + fp),
        "recall": _share(tp, tp + fn),
        "f1": {
            "value": 2 * tp / max(2 * tp + fp + fn, 1),
            "interval": bootstrap_f1(counts),
            "fleets": len(tallies),
        },
        "windows": asdict(total),
    }


def _natural(
    rate: float, outcomes: Sequence[Outcome], alarms: int, node_days: float
) -> dict[str, Any]:
    """Of the alarms of a cluster with faults at their natural rate, how many are about one.

    The interval takes the worse ends of recall and of the rate of false alarms together, and the
    better ones: it is wider than 95 %.
    """
    found = sum(outcome.found for outcome in outcomes)
    recall, low_high = found / max(len(outcomes), 1), wilson(found, len(outcomes))
    false = alarms / node_days * PER_NODE_DAYS if node_days else 0.0
    least, most = (value * PER_NODE_DAYS for value in exact_rate(alarms, node_days))

    def precision(recall: float, false: float) -> float:
        true = rate * recall
        return true / (true + false) if true + false > 0.0 else 0.0

    return {
        "faults_per_1000_node_days": rate,
        "precision": precision(recall, false),
        "interval": (precision(low_high[0], most), precision(low_high[1], least)),
    }


def curve(outcomes: Iterable[Outcome], edges: Sequence[float]) -> list[dict[str, Any]]:
    """Recall over magnitude, in the bins between the edges; the last one holds its upper edge."""
    found = [outcome for outcome in outcomes if outcome.magnitude is not None]
    bins = []
    for number, (low, high) in enumerate(pairwise(edges)):
        last = number == len(edges) - 2
        here = [
            o.found
            for o in found
            if o.magnitude is not None
            and (low <= o.magnitude < high or (last and o.magnitude == high))
        ]
        bins.append({"from": low, "to": high, "recall": _share(sum(here), len(here))})
    return bins


def _share(hits: int, of: int) -> dict[str, Any]:
    return {
        "value": hits / of if of else None,
        "hits": hits,
        "of": of,
        "interval": wilson(hits, of),
    }


def _rate(count: int, node_days: float) -> dict[str, Any]:
    low, high = exact_rate(count, node_days)
    return {
        "value": count / node_days * PER_NODE_DAYS if node_days else None,
        "count": count,
        "node_days": node_days,
        "interval": (low * PER_NODE_DAYS, high * PER_NODE_DAYS),
    }
