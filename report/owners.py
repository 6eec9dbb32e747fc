"""What each owner had: a user, else an account or a namespace, else the holder itself."""

from collections import defaultdict
from collections.abc import Iterable

from accounting.usage import Share, share_percent
from accounting.usage.ownership import NOBODY_KNOWN

from .content import Holder
from .holders import MOST_HOLDERS, NOT_KNOWN
from .rounding import HOUR, near, rounded


def owners(shares: Iterable[Share], digits: int) -> tuple[Holder, ...]:
    """Those that had most at 0 %, the rest as one row."""
    groups: dict[str, list[Share]] = defaultdict(list)
    for share in shares:
        groups[name_of(share)].append(share)
    ordered = sorted(groups.items(), key=lambda it: (-_sum(it[1], "idle"), it[0]))
    listed, rest = ordered[:MOST_HOLDERS], ordered[MOST_HOLDERS:]
    if rest:
        listed.append((f"{len(rest):,} more", [one for _, group in rest for one in group]))
    return tuple(_row(name, group, digits) for name, group in listed)


def name_of(share: Share) -> str:
    """Whose it is, as far as that is known."""
    if share.holder == NOBODY_KNOWN:
        return NOT_KNOWN
    return share.user or share.account or share.holder


def _row(name: str, group: list[Share], digits: int) -> Holder:
    used = share_percent(_sum(group, "used"), _sum(group, "measured"))
    return Holder(
        holder=name,
        user=None,
        command=None,
        gpus=None,
        gpu_hours=near(_sum(group, "allocated") / HOUR, digits),
        used_percent=rounded(used),
        zero_gpu_hours=near(_sum(group, "idle") / HOUR, digits),
    )


def _sum(group: list[Share], name: str) -> float:
    return float(sum(getattr(one, name) for one in group))
