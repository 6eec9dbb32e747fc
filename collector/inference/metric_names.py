"""What the metrics on vLLM's and Triton's pages mean. Pure.

vLLM: `docs/usage/metrics` of each version, and `vllm/v1/metrics/loggers.py`. Until 0.8 a page has
no label `engine`; `gpu_cache_usage_perc` became `kv_cache_usage_perc` in 0.9, which has both, and
has gone since. Triton: `docs/user_guide/metrics.md` of its server (`gpu_uuid` is a label of a
model's counters in old versions only; pending requests are reported from 23.12 on), and the README
of its TensorRT-LLM backend, whose cache has `fraction` from 24.03 on and counts of blocks always.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .scrape_result import MOST_REPLICAS, Replica, name_of, number

Sample = tuple[str, Mapping[str, str], float]

_RUNNING, _WAITING, _CACHE = "requests_running", "requests_waiting", "kv_cache_percent"
_ANSWERED, _PUT_BACK, _QUEUED = "requests", "preemptions", "queue_seconds"

# By name without `_total`: the field, a factor, and the precedence: the higher one wins.
_VLLM: Mapping[str, tuple[str, float, int]] = {
    "vllm:num_requests_running": (_RUNNING, 1.0, 1),
    "vllm:num_requests_waiting": (_WAITING, 1.0, 1),
    "vllm:kv_cache_usage_perc": (_CACHE, 100.0, 2),
    "vllm:gpu_cache_usage_perc": (_CACHE, 100.0, 1),
    "vllm:request_success": (_ANSWERED, 1.0, 1),
    "vllm:num_preemptions": (_PUT_BACK, 1.0, 1),
    "vllm:request_queue_time_seconds_sum": (_QUEUED, 1.0, 1),
}
_TRITON: Mapping[str, tuple[str, float, int]] = {
    "nv_inference_request_success": (_ANSWERED, 1.0, 1),
    "nv_inference_request_failure": (_ANSWERED, 1.0, 1),
    "nv_inference_queue_duration_us": (_QUEUED, 1e-6, 1),
    "nv_inference_pending_request_count": (_WAITING, 1.0, 1),
}
_REQUESTS, _BLOCKS = "nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics"
_ENGINE: Mapping[tuple[str, str], tuple[str, float, int]] = {
    (_REQUESTS, "scheduled"): (_RUNNING, 1.0, 2),
    (_REQUESTS, "active"): (_RUNNING, 1.0, 1),
    (_REQUESTS, "waiting"): (_WAITING, 1.0, 2),
    (_BLOCKS, "fraction"): (_CACHE, 100.0, 2),
}
NAMES = frozenset(
    {name + end for name in (*_VLLM, *_TRITON) for end in ("", "_total")} | {_REQUESTS, _BLOCKS}
)


@dataclass(slots=True)
class _Found:
    numbers: dict[str, tuple[int, float]] = field(default_factory=dict)  # precedence and sum
    blocks: dict[str, float] = field(default_factory=dict)
    gpus: set[str] = field(default_factory=set)
    engine: bool = False  # whether TensorRT-LLM reports it

    def add(self, what: tuple[str, float, int], value: float) -> None:
        """Add a value to its field: equal precedence adds up, a higher precedence replaces."""
        name, factor, sure = what
        before = self.numbers.get(name, (sure, 0.0))
        if sure >= before[0]:
            summed = before[1] if sure == before[0] else 0.0
            self.numbers[name] = (sure, summed + value * factor)

    def cache(self) -> float | None:
        """Return the percentage in use, as reported or by blocks; None where neither is known.

        A page may report it even for a model that has no cache.
        """
        told = self.numbers.get(_CACHE)
        if told is not None:
            return min(told[1], 100.0)
        used, most = self.blocks.get("used"), self.blocks.get("max")
        return None if used is None or not most else min(100.0 * used / most, 100.0)


def replicas(samples: Iterable[Sample]) -> tuple[Replica, ...]:
    """Return the replicas on a page, in order; none if the page is about something else."""
    found: dict[tuple[str, str, str], _Found] = {}
    for name, labels, value in samples:
        key = _key(name, labels)
        if key is None or number(value) is None:
            continue
        if key not in found and len(found) == MOST_REPLICAS:
            continue
        _add(found.setdefault(key, _Found()), name, labels, value)
    # Triton's pre- and post-processing of an engine has values too, but is no model of its own.
    engines = any(one.engine for one in found.values())
    return tuple(
        _replica(key, one)
        for key, one in sorted(found.items())
        if one.numbers and (one.engine or not engines or key[0] != "triton")
    )


def _key(name: str, labels: Mapping[str, str]) -> tuple[str, str, str] | None:
    if name not in NAMES:
        return None
    if name.startswith("vllm:"):
        return "vllm", name_of(labels.get("model_name", "")), name_of(labels.get("engine", ""))
    return "triton", name_of(labels.get("model", "")), name_of(labels.get("version", ""))


def _add(one: _Found, name: str, labels: Mapping[str, str], value: float) -> None:
    if name in {_REQUESTS, _BLOCKS}:
        one.engine = True
        kind = labels.get("request_type" if name == _REQUESTS else "kv_cache_block_type", "")
        if (what := _ENGINE.get((name, kind))) is not None:
            one.add(what, value)
        elif name == _BLOCKS:
            one.blocks[kind] = value
        return
    plain = name.removesuffix("_total")
    one.add(_VLLM.get(plain) or _TRITON[plain], value)
    if labels.get("gpu_uuid", "").startswith("GPU-"):
        one.gpus.add(name_of(labels["gpu_uuid"]))


def _replica(key: tuple[str, str, str], one: _Found) -> Replica:
    server, model, engine = key
    numbers = {name: value for name, (_, value) in one.numbers.items() if name != _CACHE}
    return Replica(
        server=server,
        model=model,
        engine=engine,
        gpus=tuple(sorted(one.gpus)),
        kv_cache_percent=one.cache(),
        **numbers,
    )
