"""Jobs from `squeue --json`.

Pure functions. What they cannot read raises `UnreadableError`: then nothing is known, which is not that there is nothing.
"""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from gpuvigil.clock import EPOCH
from gpuvigil.hostlist import expand
from gpuvigil.model import ENDED_STATES, Job, Subject

from . import counts

# What one job may have told of it.
_MOST_NODES = 4096
_LONGEST = 200
_FAR = 253402300800  # the year 10000: Slurm's NO_VAL64 and infinite times are beyond


class UnreadableError(ValueError):
    """An answer that is none: cut off, of an unknown form, or one that tells of an error."""


def read(text: str, told_by: Subject, seen_at: datetime) -> tuple[Job, ...]:
    """Jobs that asked for GPUs; data parsers of 21.08 to 24.11 write numbers and states in three ways."""
    try:
        said = json.loads(text)
    except ValueError as error:
        raise UnreadableError(f"squeue's JSON cannot be read: {error}") from error
    if not isinstance(said, dict) or not isinstance(said.get("jobs"), list):
        raise UnreadableError("squeue's JSON has no list of jobs")
    errors = said.get("errors") or []
    if errors:
        raise UnreadableError(f"squeue: {_error(errors[0])}")
    found = (job(one, told_by, seen_at) for one in said["jobs"] if isinstance(one, dict))
    return tuple(one for one in found if one is not None)


def _error(answer: Any) -> str:
    return (
        str(answer.get("description") or answer.get("error") or answer)
        if isinstance(answer, dict)
        else str(answer)
    )


def job(entry: Mapping[str, Any], told_by: Subject, seen_at: datetime) -> Job | None:
    """One job; None for one without GPUs, or that is none."""
    number, state = _number(entry.get("job_id")), _state(entry.get("job_state"))
    submitted = _time(_number(entry.get("submit_time")))
    given = entry.get("gres_detail")
    details = [str(one) for one in given] if isinstance(given, list) else []
    nodes = tuple(expand(str(entry.get("nodes") or "")))[:_MOST_NODES]
    asked = _asked(entry, details, max(_number(entry.get("node_count")) or 1, 1))
    if number is None or not state or submitted is None or asked is None:
        return None
    began = state != "PENDING"
    return Job(
        told_by=told_by,
        number=str(number),
        state=state,
        submitted_at=submitted,
        seen_at=seen_at,
        started_at=_time(_number(entry.get("start_time"))) if began else None,
        ended_at=_time(_number(entry.get("end_time"))) if state in ENDED_STATES else None,
        array=_array(entry),
        nodes=nodes if began else (),
        gpus=asked,
        numbers=_numbers(nodes, details),
        limit_seconds=_minutes(entry.get("time_limit")),
        exit_code=_exit_code(entry.get("exit_code")) if state in ENDED_STATES else None,
        reason=printable(entry.get("state_reason"), but="None"),
        user=printable(entry.get("user_name")),
        account=printable(entry.get("account")),
        partition=printable(entry.get("partition")),
        qos=printable(entry.get("qos")),
        name=printable(entry.get("name")),
    )


def _asked(said: Mapping[str, Any], details: list[str], nodes: int) -> int | None:
    """The GPUs that are given, or asked for; None for a job without, or where this version does not tell."""
    given = [count for one in details if (count := counts.gpus(one)) is not None]
    if given:
        return sum(given)
    for key, times in (
        ("tres_alloc_str", 1),
        ("tres_req_str", 1),
        ("tres_per_job", 1),
        ("tres_per_node", nodes),
        ("tres_per_task", max(_number(said.get("tasks")) or 1, 1)),
    ):
        found = counts.gpus(str(said.get(key) or ""))
        if found is not None:
            return found * times
    return None


def _numbers(nodes: tuple[str, ...], details: list[str]) -> dict[str, tuple[int, ...]]:
    """An entry a node, in their order: otherwise it is not known whose it is."""
    if len(nodes) != len(details):
        return {}
    return {
        node: found
        for node, one in zip(nodes, details, strict=True)
        if (found := counts.indexes(one))
    }


def _array(said: Mapping[str, Any]) -> str | None:
    of, task = _number(said.get("array_job_id")), _number(said.get("array_task_id"))
    if not of:
        return None
    if task is not None:
        return f"{of}_{task}"
    waiting = printable(said.get("array_task_string"))
    return f"{of}_[{waiting}]" if waiting else str(of)


def _number(said: Any) -> int | None:
    """`3`, or `{"set": true, "infinite": false, "number": 3}` from data parser 0.0.39 on."""
    if isinstance(said, dict):
        there = said.get("set") and not said.get("infinite")
        said = said.get("number") if there else None
    return said if isinstance(said, int) and not isinstance(said, bool) else None


def _state(said: Any) -> str:
    """A word, or from 0.0.40 on a list: `["RUNNING"]`, `["COMPLETED", "COMPLETING"]`."""
    return str(said[0] if isinstance(said, list) and said else said or "")


def _exit_code(said: Any) -> str | None:
    """A wait status (22.05: 768 is exit(3), 9 is SIGKILL), or from 0.0.40 on what it means.

    `sacct --json` of 22.05 tells 0 of a job that ended with 3; squeue's is right.
    """
    if isinstance(said, dict) and "return_code" in said:
        code = _number(said["return_code"])
        signal = said.get("signal")
        named = signal if isinstance(signal, dict) else {}
        by = _number(named.get("id", named.get("signal_id")))
        return None if code is None and by is None else f"{code or 0}:{by or 0}"
    status = _number(said)
    return None if status is None else f"{status >> 8 & 0xFF}:{status & 0x7F}"


def _minutes(said: Any) -> int | None:
    found = _number(said)
    return None if found is None else found * 60


def _time(seconds: int | None) -> datetime | None:
    return EPOCH + timedelta(seconds=seconds) if seconds and 0 < seconds < _FAR else None


def printable(value: Any, but: str = "(null)") -> str | None:
    """A text in one printable line: users choose names."""
    if not isinstance(value, str) or value in {"", "(null)", "N/A", but}:
        return None
    return "".join(ch if ch.isprintable() else "?" for ch in value[:_LONGEST])
