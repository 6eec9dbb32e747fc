"""GPU-hours by owner: a user, else an account or a namespace, else the holder."""

from collections import defaultdict
from collections.abc import Iterable

from accounting.usage import Share, share_percent
from accounting.usage.ownership import NOBODY_KNOWN

from ..model.rounding import HOUR, rounded
from ..model.sheet import Cell, Column, Kind, Sheet, exact

MOST_OWNERS = 12
NOT_KNOWN = "holder not known"


def owners(shares: Iterable[Share]) -> Sheet:
    """Return the owners with most at 0 %, and the rest as one row."""
    groups: dict[str, list[Share]] = defaultdict(list)
    for share in shares:
        groups[name_of(share)].append(share)
    ordered = sorted(groups.items(), key=lambda it: (-_sum(it[1], "idle"), it[0]))
    listed, rest = ordered[:MOST_OWNERS], ordered[MOST_OWNERS:]
    if rest:
        listed.append((f"{len(rest):,} more", [one for _, group in rest for one in group]))
    return Sheet(
        key="owners",
        heading="Allocated at 0 %, by owner",
        caption="What was allocated to each owner, and what of it was at 0 %",
        columns=(
            Column(key="owner", label="Owner"),
            Column(key="gpu_hours", label="GPU-hours", kind=Kind.HOURS),
            Column(key="used_percent", label="Used", kind=Kind.PERCENT),
            Column(key="zero_gpu_hours", label="At 0 % GPU-h", kind=Kind.HOURS),
        ),
        rows=tuple(_row(name, group) for name, group in listed),
    )


def name_of(share: Share) -> str:
    """Return the owner's name, as far as it is known."""
    if share.holder == NOBODY_KNOWN:
        return NOT_KNOWN
    return share.user or share.account or share.holder


def _row(name: str, group: list[Share]) -> tuple[Cell, ...]:
    used = rounded(share_percent(_sum(group, "used"), _sum(group, "measured")))
    held, idle = _sum(group, "allocated") / HOUR, _sum(group, "idle") / HOUR
    return (name, exact(held), used, exact(idle))


def _sum(group: list[Share], name: str) -> float:
    return float(sum(getattr(one, name) for one in group))
