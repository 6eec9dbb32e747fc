"""The last checkpoint of jobs that ended, from the store, as far as the first of their nodes reported it."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from gpuvigil.hub_client import Hub
from gpuvigil.model import Subject
from gpuvigil.store.external import store_of

from .losses import Ended, Key

# Only this many of the newest jobs that a failure ended are looked up.
MOST_ASKED = 20
_BEFORE_END, _AFTER_END, _STEP = timedelta(minutes=5), timedelta(minutes=1), timedelta(minutes=1)
_AGE = "checkpoint_age_seconds"


def checkpoints(hub: Hub, jobs: Iterable[Ended]) -> Mapping[Key, datetime]:
    """Return the last checkpoint of the newest jobs that reported one; HubError or StoreError when no answer comes."""
    asked_of = list(jobs)[:MOST_ASKED]
    found = {job.key: _checkpoint(hub, job) for job in asked_of if job.nodes}
    return {key: at for key, at in found.items() if at is not None}


def _checkpoint(hub: Hub, job: Ended) -> datetime | None:
    where = {"cluster": job.cluster, "node": job.nodes[0]}
    span = job.ended_at - _BEFORE_END, job.ended_at + _AFTER_END
    rows = [
        row
        for row in store_of(hub).series("gpu", (_AGE,), where, span, _STEP).to_pylist()
        if row[_AGE] is not None
    ]
    keys = {Subject(cluster=job.cluster, node=row["node"], gpu=row["uuid"]).key for row in rows}
    # A node may have had several jobs: the GPUs must be known, or the job must have had all of them.
    if not keys or (not job.gpu_keys and len(keys) * len(job.nodes) != job.gpus):
        return None
    written = [
        row["at"] + timedelta(seconds=row["offset_seconds"] - row[_AGE])
        for row in rows
        if not job.gpu_keys
        or Subject(cluster=job.cluster, node=row["node"], gpu=row["uuid"]).key in job.gpu_keys
    ]
    return max((at for at in written if at <= job.ended_at), default=None)
