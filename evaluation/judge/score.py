"""Counts of one fleet that add up, and the figures that are made of them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

import numpy as np

from gpuvigil.model import Severity, Subject
from simulator.fleet import Truth

from .claims import Claim
from .fault_names import names
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
    # By severity and then verdict: how many claims.
    by_severity: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain values; an outcome is a row in the order of `Outcome`."""
        return {
            "node_days": self.node_days,
            "outcomes": [list(asdict(outcome).values()) for outcome in self.outcomes],
            "verdicts": {name: dict(them) for name, them in sorted(self.verdicts.items())},
            "named": {name: list(them) for name, them in sorted(self.named.items())},
            "units": asdict(self.units),
            "false_pages": self.false_pages,
            "by_severity": {
                severity: dict(sorted(them.items()))
                for severity, them in sorted(self.by_severity.items())
            },
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Tally":
        fields = list(Outcome.__dataclass_fields__)
        return cls(
            node_days=values["node_days"],
            outcomes=tuple(
                # An older judge asked less.
                Outcome(**dict(zip(fields, row, strict=False)))
                for row in values["outcomes"]
            ),
            verdicts=values["verdicts"],
            named={name: (them[0], them[1]) for name, them in values["named"].items()},
            units=Units(**values["units"]),
            false_pages=values["false_pages"],
            by_severity=values["by_severity"],
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
    by_severity: dict[str, Counter[str]] = defaultdict(Counter)
    said: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for one in judged:
        verdicts[one.claim.fault][one.verdict.value] += 1
        by_severity[one.claim.severity.value][one.verdict.value] += 1
        if one.verdict is Verdict.RIGHT:
            right[kinds[one.truth or ""]] += 1
            said[kinds[one.truth or ""]] += 1
        elif one.verdict is not Verdict.ECHO:
            said.update(names(one.claim.fault, one.claim.said))
    days = (span[1] - span[0]).total_seconds() / 86_400.0
    return Tally(
        node_days=days * len(nodes),
        outcomes=tuple(outcomes),
        verdicts=verdicts,
        named={kind: (right[kind], said[kind]) for kind in said},
        units=units(truths, claims, nodes, span),
        false_pages=false_pages(judged),
        by_severity=by_severity,
    )


def score(tallies: Sequence[Tally]) -> dict[str, Any]:
    """Every figure, each with what it was made of and its 95 % interval."""
    outcomes = [outcome for one in tallies for outcome in one.outcomes]
    node_days = sum(one.node_days for one in tallies)
    verdicts: dict[str, Counter[str]] = {severity.value: Counter() for severity in Severity}
    for one in tallies:
        for severity, them in one.by_severity.items():
            verdicts[severity].update(them)
    pages = sum(one.false_pages for one in tallies)
    everything = sum(verdicts.values(), Counter[str]())
    return {
        "faults": _found(outcomes),
        "claims": {
            "verdicts": {verdict.value: everything[verdict.value] for verdict in Verdict},
            "precision": _precision(everything),
            "precision_by_severity": {it: _precision(them) for it, them in verdicts.items()},
            "false_by_severity": {
                it: _rate(them[Verdict.FALSE.value], node_days) for it, them in verdicts.items()
            },
            "false_pages_per_1000_node_days": _rate(pages, node_days),
        },
        "machines": _machines(tallies),
        "natural": {
            "alarms": _natural(outcomes, verdicts, node_days, _ALARMS),
            "critical": _natural(outcomes, verdicts, node_days, _ALARMS[:1]),
        },
        "kinds": {
            kind: _kind(kind, outcomes, tallies) for kind in sorted({o.fault for o in outcomes})
        },
        "node_days": node_days,
    }


# What somebody acts on: a note is read in the digest.
_ALARMS = (Severity.CRITICAL, Severity.WARNING)


def _precision(verdicts: Mapping[str, int]) -> dict[str, Any]:
    of = sum(verdicts.values())
    return _share(of - verdicts.get(Verdict.FALSE.value, 0), of)


def _found(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Recall and what was said of the faults; causes, places and actions are shares of all."""
    seconds = [o.seconds for o in outcomes if o.seconds is not None]
    named = [o.named_seconds for o in outcomes if o.named_seconds is not None]
    of = len(outcomes)
    return {
        "recall": _share(len(seconds), of),
        "cause": _share(sum(o.cause for o in outcomes), of),
        "place": _share(sum(o.place for o in outcomes), of),
        "action": _share(sum(o.action for o in outcomes), of),
        "severity": _share(sum(o.severity for o in outcomes), of),
        # Every fault should be one incident, and that should name it.
        "exactly_one": _share(sum(o.incidents == 1 and o.named == 1 for o in outcomes), of),
        "seconds_median": None if not seconds else float(np.median(seconds)),
        "named_at_first": _share(sum(o.named_at_first is True for o in outcomes), of),
        "named_seconds_median": None if not named else float(np.median(named)),
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
    outcomes: Sequence[Outcome],
    verdicts: Mapping[str, Mapping[str, int]],
    node_days: float,
    severities: Sequence[Severity],
) -> list[dict[str, Any]]:
    """Of the claims of these severities on a cluster with faults at their natural rate, how many
    are about one, counting one claim for each fault that was found with such a claim.

    The interval takes the worse ends of recall and of the rate of false claims together, and the
    better ones: it is wider than 95 %.
    """
    named = {severity.value for severity in severities}
    found = sum(outcome.told in named for outcome in outcomes)
    alarms = sum(verdicts[it].get(Verdict.FALSE.value, 0) for it in named)
    recall, low_high = found / max(len(outcomes), 1), wilson(found, len(outcomes))
    false = alarms / node_days * PER_NODE_DAYS if node_days else 0.0
    least, most = (value * PER_NODE_DAYS for value in exact_rate(alarms, node_days))

    def precision(rate: float, recall: float, false: float) -> float:
        true = rate * recall
        return true / (true + false) if true + false > 0.0 else 0.0

    return [
        {
            "faults_per_1000_node_days": rate,
            "precision": precision(rate, recall, false),
            "interval": (precision(rate, low_high[0], most), precision(rate, low_high[1], least)),
            "recall": _share(found, len(outcomes)),
            "false": _rate(alarms, node_days),
        }
        for rate in NATURAL_RATES
    ]


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
