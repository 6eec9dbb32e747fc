"""Lines as NCCL Inspector writes them."""

import json
from typing import Any


def line(rank: int, number: int, microseconds: object, **more: Any) -> bytes:
    """NVIDIA/nccl v2.30.7, plugins/profiler/inspector/inspector_json.cc:26-258."""
    value = {
        "header": {
            "id": more.get("id", "0xabc12"),
            "comm_name": "unknown",
            "rank": rank,
            "n_ranks": more.get("n_ranks", 4),
            "nnodes": 1,
        },
        "metadata": {
            "inspector_output_format_version": more.get("version", "v4.0"),
            "git_rev": "",
            "rec_mechanism": "nccl_profiler_interface",
            "dump_timestamp_us": more.get("written", 1_772_600_000_000_000),
            "hostname": more.get("host", "n1"),
            "pid": more.get("pid", 4242 + rank),
        },
        "coll_perf": {
            "coll": more.get("operation", "AllReduce"),
            "coll_sn": number,
            "coll_msg_size_bytes": 1_048_576,
            "coll_exec_time_us": microseconds,
            "coll_timing_source": more.get("clock", "kernel_gpu"),
            "coll_algobw_gbs": 4.99,
            "coll_busbw_gbs": "nan",
        },
    }
    return json.dumps(value).encode()
