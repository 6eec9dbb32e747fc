"""What a result belongs to: hashes of the fleet's sources, and of what was judged and how."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from gpuvigil.config import AnalyzerSettings

ROOT = Path(__file__).parent.parent
# The fleet, its parameter ranges, and which fleets are for what.
_FLEET = ("simulator/fleet", "evaluation/splits.py")
_JUDGED = (
    "analyzer",
    "gpuvigil/faults/conditions.py",
    "gpuvigil/data",
    "gpuvigil/faults",
    "gpuvigil/lifecycle.py",
    "evaluation/baselines",
    "evaluation/judge",
    "evaluation/judge/fault_names.py",
    "evaluation/replay.py",
)


# Of the analyzer, what no claim depends on.
_NOT_JUDGED = frozenset(
    {
        *(
            "analyzer/service.py",
            "analyzer/hub_queries.py",
            "analyzer/jobs/prometheus_inventory.py",
            "analyzer/jobs/usage_job.py",
        ),
        *(
            "analyzer/jobs/job_accounts.py",
            "analyzer/incidents/history.py",
            "analyzer/window/out_of_service.py",
        ),
        *(
            "analyzer/jobs/replacement_job.py",
            "analyzer/explain_command.py",
            "analyzer/jobs/efficiency_job.py",
        ),
    }
)


def fleet_hash() -> str:
    """16 hex digits that change with anything that a fleet or its truth is made from."""
    return hash_of(_FLEET)


def judged_hash() -> str:
    """16 hex digits that change with the detectors, their default limits, and the judge."""
    return hash_of(_JUDGED, repr(AnalyzerSettings()))


def hash_of(places: Iterable[str], values: str = "") -> str:
    """16 hex digits over the sources at these places, and over what else is said to count."""
    digest = hashlib.sha256(values.encode())
    for place in places:
        path = ROOT / place
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            name = file.relative_to(ROOT).as_posix()
            if file.suffix in {".py", ".csv"} and name not in _NOT_JUDGED:
                digest.update(name.encode() + b"\0")
                digest.update(file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
