"""The outcome of a run: which rule fired when, and what else was raised. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuvigil.model import Incident

from .play import Play, events_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one fault: the incident that its rule raised, and after how many seconds it was seen."""

    rule: str
    fault: str
    seconds: float | None = None  # None: the rule did not fire
    incident: str = ""
    others: tuple[str, ...] = ()  # other faults that stand on its nodes


def outcomes(
    play: Play,
    incidents: Iterable[Incident],
    seen: Mapping[str, float],
    told: float | None = None,
) -> tuple[Outcome, ...]:
    """Return one outcome for each fault; `seen` has by incident after how many seconds it was seen.

    `told` is after how many seconds events were sent; faults that rest on events count from then on.
    """
    of_node: dict[str, list[Incident]] = {}
    for one in incidents:
        of_node.setdefault(one.subject.node, []).append(one)
    found = []
    for fault in play.faults:
        nodes = [node.subject.node for node in play.nodes if node.fault is fault]
        here = [one for node in nodes for one in of_node.get(node, ())]
        own = sorted((seen[one.id], one.id) for one in here if one.fault == fault.key)
        others = sorted(
            {one.fault for one in here if one.fault != fault.key and one.resolved_at is None}
        )
        made = Outcome(rule=fault.detector, fault=fault.key, others=tuple(others))
        if own:
            made = Outcome(
                rule=fault.detector,
                fault=fault.key,
                seconds=_since_told(
                    own[0][0], told if events_of(fault.selftest, play.settings) else None
                ),
                incident=own[0][1],
                others=tuple(others),
            )
        found.append(made)
    return tuple(found)


def _since_told(seconds: float, told: float | None) -> float:
    return seconds if told is None or seconds < told else seconds - told


def table(found: Sequence[Outcome]) -> Iterator[str]:
    """Yield a line per fault, and the verdict."""
    rule = max(len(one.rule) for one in found) + 2
    fault = max(len(one.fault) for one in found) + 2
    yield f"{'RULE':<{rule}}{'FAULT':<{fault}}FIRED"
    for one in found:
        fired = "did not fire" if one.seconds is None else f"after {one.seconds:.0f} s"
        beside = f"; beside it {', '.join(one.others)}" if one.others else ""
        yield f"{one.rule:<{rule}}{one.fault:<{fault}}{fired}{beside}"
    silent = sorted({one.rule for one in found if one.seconds is None})
    if silent:
        rules = "1 rule" if len(silent) == 1 else f"{len(silent)} rules"
        yield f"{rules} did not fire: {', '.join(silent)}"
    else:
        yield f"every rule fired: {len({one.rule for one in found})} rules, {len(found)} faults"
