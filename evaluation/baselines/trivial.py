"""Always and never alarming: no table means anything without these two."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from gpuvigil.model import Severity, Subject

from ..judge.claims import Claim, IncidentText
from ..judge.fault_names import NAMING

ALWAYS, NEVER = "always alarm", "never alarm"
EVERY = timedelta(minutes=15)


def always(nodes: Iterable[Subject], span: tuple[datetime, datetime]) -> Iterator[Claim]:
    """Yield a warning about every node in every quarter of an hour."""
    said = IncidentText(title="something may be wrong")
    for node in nodes:
        for number in range(int((span[1] - span[0]) / EVERY)):
            at = span[0] + number * EVERY
            yield Claim(
                id=f"{ALWAYS} {node.key} {number}",
                fault=ALWAYS + NAMING,
                subject=node,
                severity=Severity.WARNING,
                texts=((at, said),),
                action="",
                spans=((at, at + EVERY),),
                loud_from=at,
            )
