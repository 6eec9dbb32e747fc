"""A critical for which a node is taken away."""

from datetime import datetime, timedelta

from gpuvigil.model import Acceptance, Evidence, Incident, Severity, Subject


def lost_gpu(node: str, now: datetime) -> Incident:
    """It stands for an hour."""
    since = now - timedelta(hours=1)
    return Incident(
        id=f"{node}-1",
        fingerprint="f",
        fault="gpu_lost",
        subject=Subject(cluster="c", node=node, gpu="GPU-1"),
        severity=Severity.CRITICAL,
        state="open",
        title="GPU fell off the bus",
        since=since,
        updated_at=since,
        evidence=(Evidence(name="PCI device", value="gone", limit="there"),),
    )


def accepted(node: str, at: datetime) -> Acceptance:
    """Somebody has tested it."""
    return Acceptance(
        node=Subject(cluster="c", node=node), by="ann", note="dcgmi diag -r 3 passed", at=at
    )
