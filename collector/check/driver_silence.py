"""When a driver or a GPU counts as silent, and when that cannot be told.

A verdict rests on the time that a call itself had, not on the time that this machine took for it;
or on what others have waited for: the collector, or a check that was killed and is stuck in the
kernel.
"""

from gpuvigil.faults.symptoms import HANGS_AFTER_SECONDS

from ..processes.watchdog_child import CALL_SECONDS
from .evidence import Item
from .facts import Facts


def of_driver(facts: Facts) -> float | None:
    """Return how long the driver has not answered, in seconds; None where that cannot be told."""
    if facts.driver is not None or "driver" in facts.unread:
        return None
    stuck = facts.stuck.seconds if facts.stuck is not None and facts.stuck.killed else 0.0
    return _judged(facts.called.get("driver"), facts.agent_silent_seconds, stuck)


def of_gpu(facts: Facts, index: int) -> float | None:
    """Return how long a listed GPU has not answered, in seconds; None where that cannot be told."""
    return _judged(facts.called.get(f"GPU {index}"), facts.silent_gpus.get(index))


def is_certain(seconds: float) -> bool:
    """Return whether a silence is too long for a driver that is only waking up."""
    return seconds >= HANGS_AFTER_SECONDS


def _judged(*silences: float | None) -> float | None:
    longest = max(seconds or 0.0 for seconds in silences)
    return longest if longest >= CALL_SECONDS else None


def evidence(facts: Facts, gpu: int | None = None) -> dict[Item, str]:
    """Return who has waited for the driver, or for one GPU, and for how long."""
    found, stuck = dict[Item, str](), facts.stuck
    own = facts.called.get("driver" if gpu is None else f"GPU {gpu}", 0.0)
    agent = facts.agent_silent_seconds if gpu is None else facts.silent_gpus.get(gpu)
    if own >= CALL_SECONDS:
        found[Item.NO_ANSWER_WITHIN] = f"{own:.1f} s"
    if stuck is not None and stuck.killed and gpu is None:
        found[Item.CALL_STUCK_FOR] = f"{stuck.seconds:.0f} s (process {stuck.pid})"
    if agent is not None:
        found[Item.COLLECTOR_UNANSWERED_FOR] = f"{agent:.0f} s"
    return found


def unjudged(facts: Facts) -> dict[str, str]:
    """Return which of driver and GPUs can be called neither healthy nor faulty now, and why."""
    if not facts.wants_gpus or facts.is_released:
        return {}
    if facts.driver is None:
        known = "driver" in facts.unread or of_driver(facts) is not None
        return {} if known else {"driver": _why(facts, "driver")}
    names = {f"GPU {gpu.index}": gpu for gpu in facts.listed if not gpu.answered}
    return {
        name: _why(facts, name)
        for name, gpu in names.items()
        if name not in facts.unread and of_gpu(facts, gpu.index) is None
    }


def _why(facts: Facts, call: str) -> str:
    if facts.stuck is not None and call not in facts.called:
        return f"process {facts.stuck.pid} is asking the driver, since {facts.stuck.seconds:.0f} s"
    busy = (
        "other checks asked it"
        if facts.others_seconds >= CALL_SECONDS
        else "this machine is too busy"
    )
    return (
        f"{busy}: of {facts.waited_seconds:.1f} s the call itself had"
        f" {facts.called.get(call, 0.0):.1f} s, and a verdict takes {CALL_SECONDS:g} s"
    )
