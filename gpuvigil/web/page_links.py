"""Addresses of the dashboard's pages, for everything that links to them.

A link about something that happened has an absolute time window, so that it shows the same
tomorrow.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from urllib.parse import urlencode

from ..model import SWITCH_DEVICE, Holder, HolderKind, Subject

OVERVIEW, GPU, NODE, INCIDENTS, PIPELINE = "/", "/gpu", "/node", "/incidents", "/pipeline"
SILENCES, EFFICIENCY, NETWORK = "/silences", "/efficiency", "/network"
JOBS, JOB = "/jobs", "/job"
PEOPLE, HARDWARE = "/people", "/hardware"
OUT_OF_SERVICE, HANDOVER = "/out-of-service", "/handover"
INFERENCE, REPORTS = "/inference", "/reports"
# How much a linked page shows before and after what happened.
MARGIN = timedelta(minutes=30)


def subject_page(subject: Subject, start: datetime, end: datetime) -> str:
    """Return path and query of the page of a GPU (by UUID), a node, or a node with one of its ports.

    A switch's port is shown with its link.
    """
    if subject.device == SWITCH_DEVICE:
        return link_page(subject)
    query = {"cluster": subject.cluster, "node": subject.node}
    if subject.gpu is not None:
        return _with(GPU, {**query, "gpu": subject.gpu, **window(start, end)})
    if subject.device is not None:
        query["port"] = f"{subject.device}/{subject.port or ''}"
    return _with(NODE, {**query, **window(start, end)})


def link_page(port: Subject) -> str:
    """Return the page of the link at a port, with both ends."""
    return _with(NETWORK, {"link": port.key})


def around(subject: Subject, start: datetime, end: datetime) -> str:
    """Return the subject's page with a margin around `start` to `end`."""
    return subject_page(subject, start - MARGIN, end + MARGIN)


def switch_page(cluster: str, switch: str) -> str:
    """Return the page of a switch and all of its ports."""
    return link_page(Subject(cluster=cluster, node=switch, device=SWITCH_DEVICE, port="0"))


def report_page(run: str) -> str:
    """Return the page of one scheduled report."""
    return _with(REPORTS, {"report": run})


def incident_page(incident: str) -> str:
    """Return the page of one incident: its whole story, and where it is acknowledged."""
    return _with(INCIDENTS, {"incident": incident})


def job_page(cluster: str | None, holder: Holder) -> str:
    """Return the page of a job or a pod, in any cluster if none is named; "" for other holders."""
    if holder.kind not in {HolderKind.JOB, HolderKind.POD}:
        return ""
    job = holder.name if holder.kind is HolderKind.JOB else str(holder)
    return _with(JOB, {**({"cluster": cluster} if cluster else {}), "job": job})


def node_page(cluster: str, node: str) -> str:
    """Return the page of a node, for the last hour."""
    return _with(NODE, {"cluster": cluster, "node": node})


def rack_page(cluster: str, rack: str) -> str:
    """Return the page of a rack: its nodes, power and temperatures; in any cluster if none is named."""
    return _with(HARDWARE, {**({"cluster": cluster} if cluster else {}), "rack": rack})


def incidents_of(fault: str) -> str:
    """Return the list of one fault's incidents, with a month of past ones."""
    return _with(INCIDENTS, {"fault": fault, "last": "30d"})


def open_incidents_of(fault: str) -> str:
    """Return the list of one fault's open incidents."""
    return _with(INCIDENTS, {"show": "active", "fault": fault})


def user_page(user: str) -> str:
    """Return the page of a user: hours, jobs and what would help."""
    return _with(PEOPLE, {"user": user})


def team_page(team: str) -> str:
    """Return the page of a team, which schedulers call an account."""
    return _with(PEOPLE, {"team": team})


def handover_page(end: datetime) -> str:
    """Return the page of the shift up to `end`: it shows the same tomorrow."""
    return _with(HANDOVER, {"to": stamp(end)})


def overview_at(at: datetime) -> str:
    """Return the overview as it was at that moment."""
    return _with(OVERVIEW, {"at": stamp(at)})


def window(start: datetime, end: datetime) -> dict[str, str]:
    """Return `from` and `to`, cut to whole seconds, for `gpuvigil.clock.from_text`."""
    return {"from": stamp(start), "to": stamp(end)}


def absolute(base_url: str, page: str) -> str:
    """Return a page's full address."""
    return base_url.rstrip("/") + page


def _with(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}"


def stamp(at: datetime) -> str:
    """Format a time for an address."""
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
