"""GPUs of a job that are idle while its others spin: those that spin wait for a rank that does nothing.

A job's first rank may save or evaluate for the others, and so may each node's first rank, so
nothing is said to wait for these. An active incident about the job keeps its subject.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuvigil.model import Evidence, Incident, Subject
from gpuvigil.store import Aggregate, Function

from ..window.subject_names import label
from ..window.window import Need, Span, Window
from .job_steps import IDLE_PERCENT, gpus_of_same_holders
from .power import least_at_work, limits

CONDITION = "waits_for_idle"
_MOST_BUSY = Aggregate(function=Function.MAX, field="utilization_percent")
_WATTS = Aggregate(function=Function.MAX, field="power_watts")
_LIMIT = Aggregate(function=Function.MAX, field="power_limit_watts")
NEEDS = (
    Need(measurement="gpu", span=Span.RECENT, aggregates=(_MOST_BUSY, _LIMIT)),
    Need(measurement="gpu", span=Span.TREND, aggregates=(_WATTS,)),
)
_MAY_SAVE = "; the first of a job may save or evaluate for the others"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRanks:
    """A job's idle GPUs, and whether the others wait for them, as far as is known."""

    gpus: tuple[Subject, ...]
    are_waited_for: bool
    evidence: Evidence


def idle_ranks(
    window: Window, spin: Sequence[Subject], active: Sequence[Incident]
) -> IdleRanks | None:
    """Return the idle GPUs of the holder of the GPUs that spin, None if there are none.

    They must be fewer than those that spin, or the only other one. `active`: incidents about a
    hang.
    """
    if not window.held(spin[0]):
        return None
    them = gpus_of_same_holders(window, spin)
    keys, others = {gpu.key for gpu in them}, them - frozenset(spin)
    about = [it for it in active if not keys.isdisjoint(_gpus_of(it))]
    known = {key for it in about for key in _gpus_of(it)}
    idle = tuple(sorted(it for it in _idle(window, known) if it in others))
    if not idle or (len(idle) >= len(spin) and len(others) > 1):
        return None
    may_save = any(_may_be_first(window, gpu) for gpu in idle)
    names = ", ".join(label(window, gpu) for gpu in idle)
    return IdleRanks(
        gpus=idle,
        are_waited_for=not may_save and all(it.condition == CONDITION for it in about),
        evidence=Evidence(name="idle meanwhile", value=names + _MAY_SAVE * may_save),
    )


def _gpus_of(one: Incident) -> set[str]:
    return {one.subject.key, *one.members}


def _idle(window: Window, known: set[str]) -> Iterator[Subject]:
    """Yield GPUs that were idle all the recent span and worked before that, or are known as idle."""
    rows = window.get("gpu", Span.RECENT)
    drew = window.get("gpu", Span.TREND).beside(rows, _WATTS.column)
    worked = drew >= least_at_work(limits(window, rows, _LIMIT.column))
    still = rows.values(_MOST_BUSY.column) < IDLE_PERCENT
    worked_lately = {gpu for gpu, _ in rows.where(still & worked)}
    for gpu, _ in rows.where(still):
        if gpu in worked_lately or gpu.key in known:
            yield gpu


def _may_be_first(window: Window, gpu: Subject) -> bool:
    """Tell whether no GPU of its holder on its node comes before it, as far as is known."""
    inventory = window.inventories.get(gpu.of_node().key)
    numbers = {it.uuid: it.index for it in (() if inventory is None else inventory.gpus)}
    own = numbers.get(gpu.gpu or "")
    before = (
        numbers.get(it.gpu or "")
        for it in gpus_of_same_holders(window, [gpu])
        if it.of_node() == gpu.of_node()
    )
    return own is None or not any(it is not None and it < own for it in before)
