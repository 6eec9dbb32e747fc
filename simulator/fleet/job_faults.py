"""Faults of a job itself, where its ranks report their steps; all of them show on its GPUs, too.

A slow rank works longer, whatever the cause. GPUs that wait for a rank that does nothing spin in a
collective, and the GPU of that rank is idle.
"""

from gpuvigil.model import Severity

from .changes import Operation, Quantity
from .holding import CHECKPOINT, COLLECTIVE, INPUT, STOPPED, WORK
from .site import FaultKind, Site


def slow_rank(site: Site) -> None:
    site.add_change(
        Quantity.PHYSICS, "speed", (site.gpu,), Operation.TIMES, 1.0 / (1.0 + site.size)
    )


def _held_up(site: Site, phase: int) -> None:
    """Stop one rank, so that the others wait for it until somebody ends the job."""
    site.add_change(Quantity.WORK, "stall", (site.gpu,), Operation.SET)
    site.add_change(Quantity.STEPS, "phase", (site.gpu,), Operation.SET, float(phase + 1))
    site.wait(site.order.seconds, besides=(site.gpu,))


def dead_process(site: Site) -> None:
    _held_up(site, WORK)
    site.add_change(Quantity.STEPS, "gone", (site.gpu,), Operation.CLOCK)
    site.stop(site.peers or (site.gpu,), linger=site.order.seconds, shut=False)


def stopped_rank(site: Site) -> None:
    _held_up(site, STOPPED)


def stuck_rank(site: Site) -> None:
    _held_up(site, INPUT if site.dice.share() < 0.4 else WORK)
    site.stop(site.peers or (site.gpu,), linger=site.order.seconds, shut=False)


def _all_stand(site: Site, phase: int) -> None:
    gpus = site.peers or (site.gpu,)
    site.add_change(Quantity.STEPS, "phase", gpus, Operation.SET, float(phase + 1))
    site.affected += [("gpu", gpu) for gpu in gpus if gpu != site.gpu]
    site.stop(gpus, linger=site.order.seconds, shut=False)


def stuck_collective(site: Site) -> None:
    _all_stand(site, COLLECTIVE)
    site.add_change(Quantity.WORK, "spin", site.peers or (site.gpu,), Operation.SET)


def stuck_checkpoint(site: Site) -> None:
    _all_stand(site, CHECKPOINT)
    site.add_change(Quantity.WORK, "stall", site.peers or (site.gpu,), Operation.SET)


_END = "Ask the job's owner; end the job."

KINDS = (
    FaultKind(key="slow rank", target="gpu", make=slow_rank, severity=Severity.WARNING,
              action="Look at what the rank does, then at its node and its GPU.",
              cause="a rank's own work takes longer than its peers'", symptoms=("job slow",),
              sizes=(0.05, 0.5), unit="share of its own work", hours=(0.2, 1.0, 12.0),
              nvidia=False),
    FaultKind(key="dead process", target="gpu", make=dead_process, severity=Severity.WARNING,
              action=_END, cause="a rank was killed, and the others wait", symptoms=("peers wait",),
              hours=(0.1, 0.3, 2.0), nvidia=False),
    FaultKind(key="stopped rank", target="gpu", make=stopped_rank, severity=Severity.WARNING,
              action=_END, cause="a rank is stopped by a signal", symptoms=("peers wait",),
              hours=(0.1, 0.3, 2.0), nvidia=False),
    FaultKind(key="stuck rank", target="gpu", make=stuck_rank, severity=Severity.WARNING,
              action=_END, cause="a rank hangs in its own work or its input",
              symptoms=("peers wait",), hours=(0.1, 0.3, 2.0), nvidia=False),
    FaultKind(key="stuck collective", target="gpu", make=stuck_collective,
              severity=Severity.WARNING, action=_END, cause="all ranks wait in a collective",
              hours=(0.2, 0.5, 2.0), nvidia=False),
    FaultKind(key="stuck checkpoint", target="gpu", make=stuck_checkpoint,
              severity=Severity.WARNING, action=_END, cause="a checkpoint is never written",
              hours=(0.7, 1.0, 4.0), nvidia=False),
)  # fmt: skip
