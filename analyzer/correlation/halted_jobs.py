"""Which faults halt a whole job, and which of them a job whose GPUs spin waits for."""

from collections.abc import Mapping

from gpuvigil.faults import FAULTS, Halts
from gpuvigil.model import Finding, Incident, Severity, Subject

from ..window.holdings import holder_key
from ..window.window import Window
from .causes import FindingOrIncident, present_fault


def halts_job(what: FindingOrIncident) -> bool:
    """Tell whether a job with this fault on one of its GPUs or nodes waits everywhere."""
    fault = present_fault(what)
    halts = FAULTS[fault].halts if fault in FAULTS else Halts.NO
    if halts is Halts.UNLESS_NOTE:
        return what.severity is not Severity.INFO
    return halts is not Halts.NO


def stalled_by(
    window: Window, hung: Finding, halted: Mapping[Subject, Finding | Incident]
) -> Finding | Incident | None:
    """Return what halts the job of spinning GPUs, None if nothing does; `halted` is by GPU or node.

    A dead rank hides its peers. A job on one node needs no network: a port that is down there halts
    only other jobs.
    """
    gpus = {hung.subject, *hung.members}
    holders = {holder_key(a) for gpu in gpus if gpu.kind == "gpu" for a in window.held(gpu)}
    of_job = {gpu for key in holders if key in window.holdings for gpu in window.holdings[key].gpus}
    is_alone = len({gpu.of_node() for gpu in of_job}) == 1
    for gpu in sorted(of_job | {gpu for gpu in gpus if gpu.kind == "gpu"}):
        cause = halted.get(gpu) or halted.get(gpu.of_node())
        if cause is not None and not (
            is_alone and FAULTS[present_fault(cause)].halts is Halts.SPREAD
        ):
            return cause
    return None
