"""Amounts of usage, all in GPU-seconds: ten GPUs for a minute are 600."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from gpuvigil.model import GpuState
from gpuvigil.schedulers.out_of_service import LostTo

_SMALL_SECONDS = 0.1
# A bucket with very many holders has the smallest of each user as one, so that its record stays readable.
OTHERS = "others"


@dataclass(frozen=True, slots=True)
class Seconds:
    """GPU-seconds of a cluster in a span; the states add up to `installed`."""

    installed: float = 0.0
    active: float = 0.0
    idle: float = 0.0  # held and at 0 % at that moment, however short that lasted
    free: float = 0.0
    unavailable: float = 0.0
    unknown: float = 0.0
    allocated: float = 0.0  # held by a process or a job, while the state was known
    measured: float = 0.0  # of those, with a measured utilisation
    used: float = 0.0  # of those, utilisation as a share of them
    powered: float = 0.0  # with a measured power
    energy_joules: float = 0.0  # of those: power summed over time; no GPU-seconds
    unattributed: float = 0.0  # measured, and whether anybody held them was not
    judged: float = 0.0  # installed, while it was known what was out of service
    # Of those, out of service, by what for (`gpuvigil.schedulers.out_of_service.LostTo`).
    lost_fault: float = 0.0
    lost_repair: float = 0.0
    lost_maintenance: float = 0.0
    lost_unknown: float = 0.0

    @property
    def known(self) -> float:
        """Those whose state was known: shares are of these."""
        return self.installed - self.unknown

    @property
    def allocated_percent(self) -> float | None:
        """Allocated, of those of which it is known whether anybody held them; None for none.

        Also None where holders are known, and of the rest nobody can say that it was free.
        """
        # What is unattributed was active, and so known, or at 0 %, and so unknown.
        active = max(self.active - (self.allocated - self.idle), 0.0)
        whole = self.known - min(self.unattributed, active)
        # Amounts are kept to the millisecond.
        if self.unattributed > 0 and self.allocated + self.unavailable >= whole - _SMALL_SECONDS:
            return None
        return share_percent(self.allocated, whole)

    @property
    def in_service_percent(self) -> float | None:
        """In service, of those of which it is known; None where it never was."""
        return share_percent(self.judged - sum(map(self.lost, LostTo)), self.judged)

    def of(self, state: GpuState) -> float:
        """GPU-seconds in that state."""
        value: float = getattr(self, state.value)
        return value

    def measured_of(self, state: GpuState) -> float | None:
        """As `of`; None for idle and free where nobody could say whether anybody held a GPU."""
        found = self.of(state)
        blind = self.unattributed > 0 and self.allocated <= 0 and found <= 0
        return None if blind and state in {GpuState.IDLE, GpuState.FREE} else found

    def lost(self, to: LostTo) -> float:
        """GPU-seconds that were lost to that."""
        value: float = getattr(self, f"lost_{to.value}")
        return value

    def __add__(self, other: "Seconds") -> "Seconds":
        return Seconds(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Seconds)}
        )


# The amounts of a share, in GPU-seconds and joules.
AMOUNTS = (
    *("allocated", "measured", "used", "idle", "shared", "energy_joules", "quiet"),
    *("idle_long", "idle_long_before"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one holder had; GPUs that several hold at once count in equal parts."""

    holder: str  # "job 1042"; processes of one user are one holder, "processes"
    user: str | None
    command: str | None
    gpus: int  # different GPUs that it held at any time of the span, at most
    allocated: float
    measured: float
    used: float
    idle: float
    partition: str | None = None  # of a job, as far as its node was told
    account: str | None = None
    project: str | None = None
    model: str | None = None  # of the GPUs
    # Of `allocated`: others held the GPU at the same time, and who used how much cannot be said.
    shared: float = 0.0
    energy_joules: float = 0.0  # of its parts, power summed over time
    # Of GPUs that it held for all of a quarter and that computed nothing in any minute of it; None of
    # a quarter that an earlier version counted.
    quiet: float | None = None
    # Of `idle spells` that have lasted the idle span by the quarter's end: what of them is in it, and what is
    # before it of those that had not lasted so long before it (`spells`); None where nobody counted that.
    idle_long: float | None = None
    idle_long_before: float | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.user or "", self.holder

    @property
    def is_rest(self) -> bool:
        """Whether it stands for many small holders."""
        return self.holder == OTHERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What the GPUs of one model on one node were."""

    node: str
    model: str  # "" where nobody names one
    seconds: Seconds


def summed(shares: Sequence[Share]) -> Share:
    """What one holder had in several quarters, or on several models."""
    models = {share.model for share in shares}
    names = {
        name: next((value for share in shares if (value := getattr(share, name))), None)
        for name in ("command", "partition", "account", "project")
    }
    amounts = {name: _total(getattr(share, name) for share in shares) for name in AMOUNTS}
    changed: dict[str, Any] = {**names, **amounts}
    return replace(
        shares[0],
        gpus=max(share.gpus for share in shares),
        model=models.pop() if len(models) == 1 else None,
        **changed,
    )


def _total(amounts: Iterable[float | None]) -> float | None:
    """Their sum; None where one of them is not known."""
    total = 0.0
    for one in amounts:
        if one is None:
            return None
        total += one
    return total


def share_percent(part: float, whole: float) -> float | None:
    """`part` in percent of `whole`; None when there is no whole."""
    return 100.0 * part / whole if whole > 0 else None
