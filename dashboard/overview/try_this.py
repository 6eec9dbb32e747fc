"""Links to what is worth a look in a demo; pure. A site with real GPUs never sees them."""

from collections.abc import Iterator

from gpuvigil.faults import where
from gpuvigil.model import Holder
from gpuvigil.web import page_links

from ..data.attention import Attention
from ..data.views import FleetView
from ..lists.jobs import is_only_silent, stops
from ..model.short_label import short_label

# Faults about how GPUs are used, which slow no job.
_OF_USE = where(lambda row: row.blame.is_use)
Link = tuple[str, str]  # text, page


def links(view: FleetView) -> tuple[Link, ...]:
    """Return the few links that show most; empty if any GPU is real or there is none."""
    with_gpus = [one for one in view.clusters if one.strip.gpus]
    if not with_gpus or not all(one.simulated for one in with_gpus):
        return ()
    return tuple(_links(view.attention))


def _links(open_incidents: tuple[Attention, ...]) -> Iterator[Link]:
    port = next(
        iter(sorted(filter(_of_port, open_incidents), key=lambda it: not _holders(it))), None
    )
    yield (
        ("Is the network the bottleneck?", page_links.NETWORK)
        if port is None
        else (
            f"A slow network: {short_label(port.incident) or port.label}",
            page_links.incident_page(port.id),
        )
    )
    yield _slow_job(open_incidents) or ("What bounds each job", page_links.JOBS)
    yield "What idle GPUs cost, by team", page_links.PEOPLE
    yield "What the next shift has to know", page_links.HANDOVER


def _slow_job(open_incidents: tuple[Attention, ...]) -> Link | None:
    """Return a link to a job that an incident slows or holds up; slow ones come first. None without any."""
    slowing = [
        it
        for it in open_incidents
        if it.incident.fault not in _OF_USE and not is_only_silent(it.incident)
    ]
    # A job that is held up makes no steps, whatever else slows it.
    held_up = {
        (it.subject.cluster, holder)
        for it in slowing
        if stops(it.incident)
        for holder in _holders(it)
    }
    for one in sorted(slowing, key=lambda it: (stops(it.incident), _of_port(it))):
        for holder in _holders(one):
            href = page_links.job_page(one.subject.cluster, Holder.parse(holder))
            if href:
                how = "held up" if (one.subject.cluster, holder) in held_up else "slow"
                return f"Why {holder} is {how}", href
    return None


def _of_port(one: Attention) -> bool:
    return one.subject.device is not None


def _holders(one: Attention) -> tuple[str, ...]:
    return one.incident.impact.holders
