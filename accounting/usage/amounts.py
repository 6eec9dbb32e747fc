"""Amounts of usage, all in GPU-seconds: ten GPUs for a minute are 600."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from gpuvigil.model import GpuState
from gpuvigil.schedulers.out_of_service import LostTo

_SMALL_SECONDS = 0.1
# In a bucket with very many holders the smallest of each user are merged, to keep its record readable.
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
    allocated: float = 0.0  # held by a process or a job, with a known state
    measured: float = 0.0  # of `allocated`: with a measured utilisation
    used: float = 0.0  # of `measured`: times the utilisation
    powered: float = 0.0  # with a measured power
    energy_joules: float = 0.0  # of `powered`: power summed over time; no GPU-seconds
    unattributed: float = 0.0  # measured, but not known whether held
    judged: float = 0.0  # installed, while it was known what was out of service
    # Of `judged`: out of service, by cause (`gpuvigil.schedulers.out_of_service.LostTo`).
    lost_fault: float = 0.0
    lost_repair: float = 0.0
    lost_maintenance: float = 0.0
    lost_unknown: float = 0.0

    @property
    def known(self) -> float:
        """The GPU-seconds with a known state: shares are of these."""
        return self.installed - self.unknown

    @property
    def allocated_percent(self) -> float | None:
        """The allocated percent of the time of which it is known whether it was held; None without any.

        Also None where holders are known, but nobody can say that the rest was free.
        """
        # Unattributed time was either active, and so known, or at 0 %, and so unknown.
        active = max(self.active - (self.allocated - self.idle), 0.0)
        whole = self.known - min(self.unattributed, active)
        # Amounts are kept to the millisecond.
        if self.unattributed > 0 and self.allocated + self.unavailable >= whole - _SMALL_SECONDS:
            return None
        return share_percent(self.allocated, whole)

    @property
    def in_service_percent(self) -> float | None:
        """The percent in service, of the time of which it is known; None without any."""
        return share_percent(self.judged - sum(map(self.lost, LostTo)), self.judged)

    def of(self, state: GpuState) -> float:
        """Return the GPU-seconds in that state."""
        value: float = getattr(self, state.value)
        return value

    def measured_of(self, state: GpuState) -> float | None:
        """Return the same as `of`; None for idle and free where it is not known whether GPUs were held."""
        found = self.of(state)
        blind = self.unattributed > 0 and self.allocated <= 0 and found <= 0
        return None if blind and state in {GpuState.IDLE, GpuState.FREE} else found

    def lost(self, to: LostTo) -> float:
        """Return the GPU-seconds lost to that cause."""
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
    """The usage of one holder; a GPU that several hold at once counts in equal parts."""

    holder: str  # "job 1042"; processes of one user are one holder, "processes"
    user: str | None
    command: str | None
    gpus: int  # most different GPUs that it held in a quarter of the span
    allocated: float
    measured: float
    used: float
    idle: float
    partition: str | None = None  # of a job, as far as its node knew
    account: str | None = None
    project: str | None = None
    model: str | None = None  # of the GPUs
    # Of `allocated`: while others held the GPU as well, so that nobody can say who used how much.
    shared: float = 0.0
    energy_joules: float = 0.0  # of its parts of GPUs, power summed over time
    # Time of GPUs that it held for a whole quarter and that computed nothing in any minute of it; None for
    # a quarter that an earlier version counted.
    quiet: float | None = None
    # Seconds in this quarter of spells that are as long as the idle rule asks by its end, and the earlier
    # seconds of those that became that long in it (`idle_spell_seconds`); None where they were not counted.
    idle_long: float | None = None
    idle_long_before: float | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.user or "", self.holder

    @property
    def is_rest(self) -> bool:
        """Whether this entry stands for many small holders."""
        return self.holder == OTHERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The GPU-seconds of one model on one node."""

    node: str
    model: str  # "" where it is not known
    seconds: Seconds


def summed(shares: Sequence[Share]) -> Share:
    """Return the sum of one holder's shares over several quarters, or over several models."""
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
    """Return the sum; None where one amount is not known."""
    total = 0.0
    for one in amounts:
        if one is None:
            return None
        total += one
    return total


def share_percent(part: float, whole: float) -> float | None:
    """`part` in percent of `whole`; None when there is no whole."""
    return 100.0 * part / whole if whole > 0 else None
