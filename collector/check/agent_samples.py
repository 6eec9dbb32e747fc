"""The collector's newest samples, used where the check itself had no answer from the driver."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from gpuvigil.clock import from_text
from gpuvigil.model import GpuIdentity, Unmeasured
from gpuvigil.plain import known

from ..processes.watchdog_child import CALL_SECONDS
from ..samples.field_values import Values
from ..samples.messages import LOADED, NO_DRIVER
from .facts import DriverFacts, Facts, GpuFacts

# A collector reads each GPU once a tick; a reading older than a few ticks says nothing about now.
_TICKS, _SHORTEST_FRESH_SECONDS = 3.0, 30.0
_CODE = re.compile(r"NVML code (\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorGpu:
    """One GPU as the collector last read it."""

    index: int
    identity: GpuIdentity | None
    values: Values | None
    reason: Unmeasured | None
    age_seconds: float
    silent_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorAnswer:
    """The collector's answer; `gpus` is empty if it has read none, or is of an older version."""

    silent_seconds: float | None = None  # of the driver as a whole
    state: str = ""
    driver: str | None = None
    age_seconds: float = 0.0
    tick_seconds: float = 0.0
    gpus: tuple[CollectorGpu, ...] = ()
    released_until: datetime | None = None

    def is_fresh(self, age_seconds: float) -> bool:
        """Return whether a reading of this age may stand for now."""
        return age_seconds <= max(_TICKS * self.tick_seconds, _SHORTEST_FRESH_SECONDS)


def parse(answer: Mapping[str, Any], now: datetime) -> CollectorAnswer:
    """Parse the answer to {"do": "status", "gpus": true}; ValueError for anything else."""
    try:
        since, until = answer.get("driver_silent_since"), answer.get("released_until")
        newest = answer.get("newest") or {}
        return CollectorAnswer(
            silent_seconds=None if since is None else (now - from_text(since)).total_seconds(),
            released_until=None if until is None else from_text(until),
            state=str(newest.get("state", "")),
            driver=newest.get("driver"),
            age_seconds=float(newest.get("age_seconds", 0.0)),
            tick_seconds=float(newest.get("tick_seconds", 0.0)),
            gpus=tuple(map(_gpu, newest.get("gpus", ()))),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not what a collector says of its node: {error!r}") from None


def _gpu(answer: Mapping[str, Any]) -> CollectorGpu:
    identity, reason, silent = answer["identity"], answer["reason"], answer["silent_seconds"]
    return CollectorGpu(
        index=int(answer["index"]),
        identity=None if identity is None else GpuIdentity(**known(GpuIdentity, identity)),
        values=answer["values"],
        reason=None if reason is None else Unmeasured(reason),
        age_seconds=float(answer["age_seconds"]),
        silent_seconds=None if silent is None else float(silent),
    )


def completed(facts: Facts, answer: CollectorAnswer | None) -> Facts:
    """Return the facts, completed by the collector's where the check had no answer itself.

    A call of the check that has hung since after the collector's reading is newer, and counts
    instead.
    """
    if answer is None:
        return facts
    facts = replace(facts, agent_silent_seconds=answer.silent_seconds)
    if answer.released_until is not None:
        facts = replace(facts, known=replace(facts.known, released_until=answer.released_until))
    if facts.driver is None and _is_current(facts, "driver", answer, answer.age_seconds):
        facts = replace(facts, driver=_driver(answer))
    if facts.driver is None or facts.driver.failure:
        return facts
    left = [g for g in answer.gpus if g.index not in facts.gpus or not facts.gpus[g.index].answered]
    silent = {g.index: g.silent_seconds for g in left if g.silent_seconds is not None}
    told = {
        gpu.index: _gpu_facts(gpu)
        for gpu in left
        if gpu.index not in silent
        and _is_current(facts, f"GPU {gpu.index}", answer, gpu.age_seconds)
    }
    return replace(facts, gpus={**facts.gpus, **told}, silent_gpus=silent)


def _is_current(facts: Facts, call: str, answer: CollectorAnswer, age_seconds: float) -> bool:
    own = facts.called.get(call, 0.0)
    return answer.is_fresh(age_seconds) and (own < CALL_SECONDS or age_seconds <= own)


def _driver(answer: CollectorAnswer) -> DriverFacts | None:
    """Return the collector's facts on the driver, None while it has none."""
    if answer.state == LOADED and answer.silent_seconds is None:
        return DriverFacts(version=answer.driver, gpus=len(answer.gpus))
    if answer.state == NO_DRIVER:
        reason = Unmeasured.DRIVER_NOT_LOADED
        return DriverFacts(failure="the collector finds no driver", reason=reason)
    if code := _CODE.search(answer.state):
        failure = f"the collector: {answer.state}"
        return DriverFacts(failure=failure, code=int(code[1]), reason=Unmeasured.READ_ERROR)
    return None


def _gpu_facts(gpu: CollectorGpu) -> GpuFacts:
    age = f"as the collector read it {gpu.age_seconds:.0f} s ago"
    reason = None if gpu.values is not None else gpu.reason
    return GpuFacts(
        index=gpu.index,
        identity=gpu.identity,
        values=gpu.values,
        failure="" if reason is None else f"{reason.text}, {age}",
        reason=reason,
        age_seconds=gpu.age_seconds,
    )
