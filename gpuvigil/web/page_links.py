"""Where the pages are, for everybody who sends people there.

A link about something that happened carries an absolute window, so that it still shows it tomorrow.
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
# How much a linked page shows around what happened.
MARGIN = timedelta(minutes=30)


def subject_page(subject: Subject, start: datetime, end: datetime) -> str:
    """Path and query of the page of a GPU, by UUID; of a node; or of a node with one of its ports.

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
    """The page of the link at a port, with both of its ends."""
    return _with(NETWORK, {"link": port.key})


def around(subject: Subject, start: datetime, end: datetime) -> str:
    """The subject's page with a margin around what happened from `start` to `end`."""
    return subject_page(subject, start - MARGIN, end + MARGIN)


def switch_page(cluster: str, switch: str) -> str:
    """The page of a switch and all of its ports."""
    return link_page(Subject(cluster=cluster, node=switch, device=SWITCH_DEVICE, port="0"))


def report_page(run: str) -> str:
    """The page of one report that was made by itself."""
    return _with(REPORTS, {"report": run})


def incident_page(incident: str) -> str:
    """The page of one incident: its whole story, and where it is acknowledged."""
    return _with(INCIDENTS, {"incident": incident})


def job_page(cluster: str | None, holder: Holder) -> str:
    """The page of a job or a pod, of any cluster where none is named; empty of any other holder."""
    if holder.kind not in {HolderKind.JOB, HolderKind.POD}:
        return ""
    job = holder.name if holder.kind is HolderKind.JOB else str(holder)
    return _with(JOB, {**({"cluster": cluster} if cluster else {}), "job": job})


def node_page(cluster: str, node: str) -> str:
    """The page of a node, of the last hour."""
    return _with(NODE, {"cluster": cluster, "node": node})


def rack_page(cluster: str, rack: str) -> str:
    """The page of a rack: its nodes, power and temperatures; in any cluster where none is named."""
    return _with(HARDWARE, {**({"cluster": cluster} if cluster else {}), "rack": rack})


def incidents_of(fault: str) -> str:
    """The list of incidents of one fault, with those of a month."""
    return _with(INCIDENTS, {"fault": fault, "last": "30d"})


def user_page(user: str) -> str:
    """The page of a user: hours, jobs and what would help."""
    return _with(PEOPLE, {"user": user})


def team_page(team: str) -> str:
    """The page of a team, which schedulers call an account."""
    return _with(PEOPLE, {"team": team})


def handover_page(end: datetime) -> str:
    """The page of the shift up to then: it shows the same tomorrow."""
    return _with(HANDOVER, {"to": stamp(end)})


def overview_at(at: datetime) -> str:
    """The overview as it was at that moment."""
    return _with(OVERVIEW, {"at": stamp(at)})


def window(start: datetime, end: datetime) -> dict[str, str]:
    """`from` and `to`, cut to whole seconds: what `gpuvigil.clock.from_text` reads."""
    return {"from": stamp(start), "to": stamp(end)}


def absolute(base_url: str, page: str) -> str:
    """A page's full address."""
    return base_url.rstrip("/") + page


def _with(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}"


def stamp(at: datetime) -> str:
    """A time in an address."""
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
