"""Xids and SXids of the last two hours that a reset has not ended."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuvigil.config import AnalyzerSettings
from gpuvigil.faults import XID_FAULTS, Scope, Xid, xid
from gpuvigil.faults.overrides import overridden
from gpuvigil.faults.sxids import Sxid, sxid
from gpuvigil.faults.xid_messages import read
from gpuvigil.model import Severity

from ..sensors.kernel_event import KernelEventKind
from .evidence import CheckEvidence, Item, shown
from .kernel_log import KernelSeen

# azurehpc-health-checks looks back as far; older reports were lived with, or cured unseen.
LOOK_BACK_SECONDS = 7200.0
# A report this young cannot have been cured yet: it stops jobs.
FRESH_SECONDS = 600.0
_ADVICE = 154


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """The reports that stand for one GPU, by its PCI address, or for the node's switches (None)."""

    address: str | None
    row: Xid | Sxid
    evidence: tuple[CheckEvidence, ...]
    certain: bool


def active_reports(
    seen: Sequence[KernelSeen], settings: AnalyzerSettings, *, driver_answers: bool
) -> Iterator[Reported]:
    """Yield the worst code of each GPU, and of the switches, with all that stands as evidence.

    An Xid with a fault of its own is left to NVML's values when the driver answers. `settings` hold
    the site's overrides of codes, and how long a passing one stands.
    """
    by_place: dict[str | None, list[tuple[KernelSeen, Xid | Sxid]]] = {}
    for one in seen:
        address = one.event.pci_address
        if one.event.kind is KernelEventKind.PCI_RESET:
            by_place.pop(address, None)
            continue
        row = _row(one, settings)
        if row is None or (one.event.code in XID_FAULTS and driver_answers):
            continue
        switch = one.event.kind is KernelEventKind.SXID
        by_place.setdefault(None if switch else address, []).append((one, row))
    for address, reports in by_place.items():
        yield _worst(address, reports)


def _row(seen: KernelSeen, settings: AnalyzerSettings) -> Xid | Sxid | None:
    """Return the report's row with the site's override; None when it does not stand, or is info."""
    code = seen.event.code
    if code is None:
        return None
    row: Xid | Sxid | None
    if seen.event.kind is KernelEventKind.SXID:
        row = overridden(sxid(code), settings.sxid_overrides)
    else:
        # What the driver advises is read from the driver itself, as it is now.
        known = xid(code) if code == _ADVICE else read(code, seen.event.text)
        row = overridden(known, settings.xid_overrides)
    if row is None:
        return None
    passing = row.scope is Scope.PASSING
    kept = min(settings.passing_xid_seconds if passing else LOOK_BACK_SECONDS, LOOK_BACK_SECONDS)
    return None if row.severity is Severity.INFO or seen.seconds_ago > kept else row


def _worst(address: str | None, reports: list[tuple[KernelSeen, Xid | Sxid]]) -> Reported:
    worst_seen, worst = min(reports, key=lambda it: (it[1].severity.rank, it[0].seconds_ago))
    word = "SXid" if isinstance(worst, Sxid) else "Xid"
    counts = Counter(row.code for _, row in reports)
    evidence: list[CheckEvidence] = []
    for code, count in counts.most_common():
        last = min(seen.seconds_ago for seen, row in reports if row.code == code)
        times = f"{count} times, last " if count > 1 else ""
        key, value = f"{word.lower()}_{code}", f"{times}{_ago(last)}"
        evidence.append(CheckEvidence(key=key, name=f"{word} {code}", value=value))
    if worst_seen.event.text:
        evidence += shown({Item.DRIVER_WORDS: worst_seen.event.text[:120]})
    certain = worst_seen.seconds_ago <= FRESH_SECONDS
    return Reported(address=address, row=worst, evidence=tuple(evidence), certain=certain)


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s ago" if seconds < 120 else f"{seconds / 60:.0f} min ago"
