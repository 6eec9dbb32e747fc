"""What several looks at one node show together: which GPUs are idle, and what gets slower or worse.

Here a GPU is idle when it is held and at 0 % at every look: over half a minute that is a hint, and
no incident. Its processes tell who holds it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from gpuvigil.clock import duration
from gpuvigil.metrics import GPU, PORT, Kind, Measurement
from gpuvigil.model import Finding, GpuIdentity

from .evidence import CheckEvidence
from .facts import Facts, GpuFacts

# Counters whose growth is no fault: of work and of time; times of slowdowns are handled apart.
_WORK = ("_bytes", "_joules", "seconds", "_ticks", "_packets", "cnp_sent", "cnp_handled")
# Clocks held down for more than this share of the time are reported; our own limit.
HELD_BACK_SHARE = 0.05
_HELD_BACK = {
    "hardware_thermal_slowdown_seconds": "slowed down by heat (hardware)",
    "software_thermal_slowdown_seconds": "slowed down by heat (driver)",
    "power_brake_seconds": "held back by the power brake",
}
_BELOW = "utilization_percent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process on a GPU; what cannot be read of it is None."""

    pid: int
    user: str | None = None
    command: str | None = None
    job: str | None = None  # Slurm's
    place: str | None = None  # a container, a pod or a unit
    seconds: float = 0.0  # since it started

    @property
    def words(self) -> str:
        """The holder as text: `job 7 (ann, python train.py), for 3 h`."""
        who = f"job {self.job}" if self.job else f"pid {self.pid}"
        more = ", ".join(one for one in (self.user, self.command, self.place) if one)
        known = f" ({more})" if more else ""
        return f"{who}{known}, for {_lasted(self.seconds)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """A held GPU that did nothing at every look."""

    gpu: str
    uuid: str
    memory_bytes: float | None
    holders: tuple[Holder, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """A counter's growth between the first look and the last, in words."""

    place: str
    what: str


def merged_findings(found: Sequence[Sequence[Finding]]) -> list[Finding]:
    """Return the findings of all looks, each once; a certain one before an uncertain one."""
    kept: dict[tuple[str, str, frozenset[str]], Finding] = {}
    for finding in (one for look in found for one in look):
        what = (finding.fault, finding.subject.key, _keys(finding))
        before = kept.get(what)
        if before is None or finding.certain or not before.certain:
            kept[what] = finding
    return sorted(kept.values(), key=lambda f: (f.severity.rank, not f.certain))


def _keys(finding: Finding) -> frozenset[str]:
    """Return the evidence's keys for programs: for an Xid, its code."""
    return frozenset(it.key for it in finding.evidence if isinstance(it, CheckEvidence))


def idle(samples: Sequence[Facts], who: Callable[[int], Holder]) -> list[Idle]:
    """Return held GPUs that were at 0 % at every look that read them, at least two."""
    found = []
    for gpu in samples[-1].listed:
        read = [one for facts in samples if (one := facts.gpus.get(gpu.index)) and one.values]
        if len(read) < 2 or gpu.identity is None or not all(map(_is_idle, read)):
            continue
        values = read[-1].values or {}
        found.append(
            Idle(
                gpu=f"GPU {gpu.index}",
                uuid=gpu.identity.uuid,
                memory_bytes=values.get("memory_used_bytes"),
                holders=tuple(who(pid) for pid in read[-1].processes or ()),
            )
        )
    return found


def _is_idle(gpu: GpuFacts) -> bool:
    used = (gpu.values or {}).get(_BELOW)
    return bool(gpu.processes) and used is not None and used == 0


def free(samples: Sequence[Facts]) -> int:
    """Return the number of GPUs that nobody holds at the last look."""
    return sum(gpu.processes == () for gpu in samples[-1].gpus.values())


def slow(samples: Sequence[Facts]) -> list[Slow]:
    """Return error counters that grew, and clocks that were held down for much of the time."""
    first, last = samples[0], samples[-1]
    seconds = (last.at - first.at).total_seconds()
    if seconds <= 0:
        return []
    return [*_gpus(first, last, seconds), *_ports(first, last, seconds)]


def _gpus(first: Facts, last: Facts, seconds: float) -> Iterator[Slow]:
    for index, gpu in sorted(last.gpus.items()):
        before = first.gpus.get(index)
        if before is None or not _is_same(before.identity, gpu.identity):
            continue
        old, new = before.values or {}, gpu.values or {}
        place = f"GPU {index}"
        for name, words in _HELD_BACK.items():
            share = (new.get(name, 0.0) - old.get(name, 0.0)) / seconds
            if name in old and share > HELD_BACK_SHARE:
                yield Slow(place=place, what=f"{words} for {min(share, 1.0):.0%} of the time")
        errors = _errors(GPU)
        yield from (Slow(place=place, what=one) for one in _grown(old, new, errors, seconds))


def _ports(first: Facts, last: Facts, seconds: float) -> Iterator[Slow]:
    before = {(it.identity.device, it.identity.port): it.values for it in first.ports or ()}
    errors = _errors(PORT)
    for port in last.ports or ():
        key = (port.identity.device, port.identity.port)
        grown = _grown(before.get(key, {}), port.values, errors, seconds)
        yield from (Slow(place=f"port {key[0]}/{key[1]}", what=one) for one in grown)


def _errors(of: Measurement) -> list[str]:
    counters = [it.name for it in of.metrics if it.kind is Kind.COUNTER]
    return [name for name in counters if not name.endswith(_WORK)]


def _grown(
    old: Mapping[str, float], new: Mapping[str, float], names: Sequence[str], seconds: float
) -> Iterator[str]:
    for name in names:
        before, after = old.get(name), new.get(name)
        if before is not None and after is not None and after > before:
            yield f"{name.replace('_', ' ')}: {after - before:g} more in {seconds:.0f} s"


def _is_same(one: GpuIdentity | None, other: GpuIdentity | None) -> bool:
    return one is not None and other is not None and one.uuid == other.uuid


def _lasted(seconds: float) -> str:
    return duration(timedelta(seconds=seconds))
