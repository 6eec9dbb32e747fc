"""The node that an incident about the GPUs of one holder is named by.

Lines of its nodes come at different moments, so now one node's GPUs show a fault and now another
one's. The incident keeps its node meanwhile: under another node it would be a second incident.
"""

from collections.abc import Sequence

from gpuvigil.model import Subject, fingerprint

from ..window.window import Window
from .job_steps import gpus_of_same_holders


def known_node(window: Window, fault: str, gpus: Sequence[Subject], holder: str) -> Subject:
    """Return the node by which this fault of the holder is known, else the first of these GPUs' nodes.

    An incident that is over may come back, and an active one comes before it.
    """
    theirs = {gpu.of_node() for gpu in gpus_of_same_holders(window, gpus)}
    prints = {fingerprint(fault, node, holder) for node in theirs}
    known = [it for it in window.recent_incidents if it.fingerprint in prints]
    if not known:
        return min(gpu.of_node() for gpu in gpus)
    return min(known, key=lambda it: (it.resolved_at is not None, it.since, it.subject)).subject
