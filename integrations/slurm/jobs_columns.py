"""Jobs from the columns of `squeue -O`, where a version of Slurm has no JSON."""

from datetime import datetime
from typing import Any

from gpuvigil.model import Job, Subject

from .jobs_json import UnreadableError, job

# Columns of `squeue -O`, each so wide. A job's name is none of them: it may hold line breaks, and would then write
# lines of its own.
COLUMNS = {
    "JobID": 16,
    "ArrayJobID": 16,
    "ArrayTaskID": 64,
    "UserName": 64,
    "Account": 64,
    "Partition": 128,
    "QOS": 64,
    "State": 20,
    "exit_code": 16,
    "Reason": 64,
    "NumNodes": 12,
    "NumTasks": 12,
    "TimeLimit": 20,
    "SubmitTime": 24,
    "StartTime": 24,
    "EndTime": 24,
    "tres-alloc": 256,
    "tres-per-job": 128,
    "tres-per-node": 128,
    "tres-per-task": 128,
    "NodeList": 1024,
}


def read(text: str, told_by: Subject, seen_at: datetime) -> tuple[Job, ...]:
    """Jobs that asked for GPUs, from lines of `COLUMNS`; without names, and without Slurm's numbers of GPUs."""
    found = (job(_as_json(line), told_by, seen_at) for line in text.splitlines() if line.strip())
    return tuple(one for one in found if one is not None)


def _as_json(line: str) -> dict[str, Any]:
    if len(line.rstrip()) < sum(list(COLUMNS.values())[:8]):
        raise UnreadableError(f"squeue wrote {line[:60]!r} where a line of columns should be")
    said, place = {}, 0
    for name, width in COLUMNS.items():
        said[name] = line[place : place + width].strip()
        place += width
    return {
        "job_id": _whole(said["JobID"]),
        "array_job_id": _whole(said["ArrayJobID"]) if said["ArrayTaskID"] not in {"", "N/A"} else 0,
        "array_task_id": _whole(said["ArrayTaskID"]),
        "array_task_string": said["ArrayTaskID"],
        "user_name": said["UserName"],
        "account": said["Account"],
        "partition": said["Partition"],
        "qos": said["QOS"],
        "job_state": said["State"],
        "exit_code": _whole(said["exit_code"]),
        "state_reason": said["Reason"],
        "node_count": _whole(said["NumNodes"]),
        "tasks": _whole(said["NumTasks"]),
        "time_limit": _limit(said["TimeLimit"]),
        "submit_time": _stamp(said["SubmitTime"]),
        "start_time": _stamp(said["StartTime"]),
        "end_time": _stamp(said["EndTime"]),
        "tres_alloc_str": said["tres-alloc"],
        "tres_per_job": said["tres-per-job"],
        "tres_per_node": said["tres-per-node"],
        "tres_per_task": said["tres-per-task"],
        "nodes": said["NodeList"],
    }


def _whole(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _limit(text: str) -> int | None:
    """Minutes of `[days-][hours:]minutes:seconds`; None for UNLIMITED and INVALID."""
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in parts) or (dash and not days.isdigit()):
        return None
    hours, minutes = [0, *map(int, parts[:-1])][-2:] if len(parts) > 1 else (0, 0)
    return int(days or 0) * 1440 + hours * 60 + minutes


def _stamp(text: str) -> int | None:
    """Seconds by SLURM_TIME_FORMAT=%s, else this machine's own time."""
    if text.isdigit():
        return int(text)
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp())
    except ValueError:
        return None
