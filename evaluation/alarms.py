"""What is said where nothing is wrong, whose it is, and what a page is then worth."""

from collections import Counter
from collections.abc import Iterator

from gpuvigil.model import Severity
from simulator.fleet import build

from .figures_text import OURS, in_order, rate, share
from .judge.score import score
from .results import Tallies
from .splits import PARTS


def false_alarms(found: Tallies) -> Iterator[str]:
    """What is said where nothing is wrong."""
    yield "## Where nothing is wrong"
    yield ""
    yield "The part *quiet*, with every look-alike of life in it: per 1,000 node-days, with the exact Poisson interval."
    yield ""
    yield "| detectors | node-days | critical pages | critical | warning | info |"
    yield "|---|---|---|---|---|---|"
    for name, own in in_order(found.get("quiet", {})):
        claims = score(own)["claims"]
        severities = [rate(claims["false_by_severity"][it.value]) for it in Severity]
        pages = claims["false_pages_per_1000_node_days"]
        yield f"| {name} | {pages['node_days']:.0f} | {rate(pages)} | {' | '.join(severities)} |"
    if quiet := found.get("quiet", {}).get(OURS):
        said = sum(
            (Counter({it: sum(of.values()) for it, of in one.verdicts.items()}) for one in quiet),
            Counter[str](),
        )
        whose = ", ".join(f"`{fault}` {count:,}" for fault, count in said.most_common())
        yield ""
        yield f"Whose these are of {OURS}'s, warnings and notes: {whose}. Most are nodes whose numbers came minutes late while their jobs ran: nobody could know so at the time, and the incident says it when they come. {_life()}"


def natural(found: Tallies) -> Iterator[str]:
    """What a page and a warning are worth at the rate of faults that real clusters have."""
    yield "## At the natural rate of faults"
    yield ""
    yield "Large clusters saw 2 to 7 faults per 1,000 node-days. With them, so many of the warnings and criticals, and of the criticals alone, would be about a fault: the recall of *report* (one claim counted for each fault found by such a claim), the false claims of *report* and *quiet* together. Notes (info) are apart. In brackets from the worse to the better ends of both intervals. Where others played fewer fleets than we did, their intervals say so."
    yield ""
    yield "| detectors | claims | 2 | 4 | 7 | found by such a claim | false per 1,000 node-days |"
    yield "|---|---|---|---|---|---|---|"
    for name, own in in_order(found.get("report", {})):
        figures = score([*own, *found.get("quiet", {}).get(name, ())])["natural"]
        for what, key in (("warnings and criticals", "alarms"), ("criticals", "critical")):
            last = figures[key][-1]
            silent = not last["recall"]["hits"] and not last["false"]["count"]
            shares = [
                # Who said nothing at all was neither right nor wrong.
                "-"
                if silent
                else f"{it['precision']:.3f} ({it['interval'][0]:.3f} to {it['interval'][1]:.3f})"
                for it in figures[key]
            ]
            yield f"| {name} | {what} | {' | '.join(shares)} | {share(last['recall'])} | {rate(last['false'])} |"
    if not (ours := found.get("report", {}).get(OURS)):
        return
    figures = score([*ours, *found.get("quiet", {}).get(OURS, ())])["natural"]
    page, both = (figures[it][1]["precision"] for it in ("critical", "alarms"))
    yield ""
    yield f"At 4 faults per 1,000 node-days and with so many look-alikes, {page:.0%} of {OURS}'s pages would be about a fault and {both:.0%} of its pages and warnings together: that is why a page wakes somebody and a warning waits for the morning."


def _life() -> str:
    """What happens in the first of the quiet fleets that could be taken for a fault."""
    part = PARTS["quiet"]
    settings = part.fleet(part.first_seed)
    happened = Counter(it.kind for it in build(settings).happenings())
    listed = ", ".join(f"{kind} {count}" for kind, count in happened.most_common())
    return f"What could be taken for a fault in the {settings.nodes * settings.days:g} node-days of the first fleet: {listed}."
