"""What NCCL's RAS answers, as NVIDIA/nccl v2.30.7 writes it (src/ras/client_support.cc:1918-2166)."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

TYPES = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")


def rank(
    number: int,
    all_reduce: int = 0,
    *,
    pid: int = 0,
    host: str = "",
    device: int | None = None,
    state: int = 0,
    error: int = 0,
    **others: Any,
) -> dict[str, Any]:
    """One rank that answers; eight on a node, unless it is said otherwise."""
    flags = ("finalize_called", "destroy_flag", "abort_flag")
    counts = {name: others.get(name, 0) for name in TYPES} | {"AllReduce": all_reduce}
    return {
        **_place(number, pid, host, device),
        "status": {
            "init_state": state,
            "async_error": error,
            **{flag: bool(others.get(flag)) for flag in flags},
        },
        "collective_counts": counts,
    }


def missing(
    number: int,
    *,
    unresponsive: bool = True,
    dead: bool = False,
    pid: int = 0,
    host: str = "",
    device: int | None = None,
) -> dict[str, Any]:
    """One rank of which nothing came."""
    status = {"unresponsive": unresponsive, "considered_dead": dead}
    return {**_place(number, pid, host, device), "status": status}


def _place(number: int, pid: int, host: str, device: int | None) -> dict[str, Any]:
    return {
        "rank": number,
        "host": host or f"10.0.0.{1 + number // 8}",
        "pid": pid or 4000 + number,
        "cuda_dev": number % 8,
        "nvml_dev": number % 8 if device is None else device,
    }


def communicator(
    ranks: Iterable[Mapping[str, Any]],
    lost: Iterable[Mapping[str, Any]] = (),
    name: str = "0xabc12",
) -> dict[str, Any]:
    ranks, lost = list(ranks), list(lost)
    return {
        "hash": name,
        "secondary_hash": "0x1f:0x2e",
        "size": len(ranks) + len(lost),
        "ranks_count": len(ranks),
        "missing_ranks_count": len(lost),
        "ranks": ranks,
        "missing_ranks": lost,
    }


def status(*communicators: Mapping[str, Any], version: str = "2.30.7", timeouts: int = 0) -> str:
    """The whole answer."""
    return json.dumps(
        {
            "nccl_version": version,
            "cuda_runtime_version": 13000,
            "cuda_driver_version": 13000,
            "timestamp": "2026-03-04 05:06:07",
            "communicators_count": len(communicators),
            "communicators": communicators,
            "ras": {"collection_time_sec": 0.051, "timeouts_count": timeouts},
        },
        indent=1,
    )
