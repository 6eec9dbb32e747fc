"""Metrics of inference servers: requests that wait and run at each replica of a model."""

from .model import Measurement, table

INFERENCE = Measurement(
    name="inference",
    tags=("cluster", "node", "uuid", "server", "endpoint", "model", "engine"),
    sentence=(
        "One line per replica of a model and GPU that serves it, each tick, from the addresses in"
        " `collector.inference_urls`: the numbers are the replica's, so do not add them over its"
        " GPUs. Without `uuid` where it is not known which GPU serves. `engine` is vLLM's, or"
        " Triton's version of the model."
    ),
    metrics=table(
        "inference",
        """
requests_running         | gauge         | vllm:num_requests_running; nv_trt_llm_request_metrics scheduled or active                    | inference | vllm-triton-metrics | - | Requests that are being computed.
requests_waiting         | gauge         | vllm:num_requests_waiting; nv_trt_llm_request_metrics waiting; nv_inference_pending_request_count | inference | vllm-triton-metrics | - | Requests that wait for their turn.
kv_cache_percent         | gauge         | vllm:kv_cache_usage_perc, before 0.9 gpu_cache_usage_perc; nv_trt_llm_kv_cache_block_metrics fraction, or used of max | inference | vllm-triton-metrics | - | Share of the key-value cache in use.
requests                 | counter       | vllm:request_success_total; nv_inference_request_success and _failure                         | inference, idle | vllm-triton-metrics | - | Requests that were answered.
preemptions              | counter       | vllm:num_preemptions_total                                                                   | inference | vllm-triton-metrics | - | Times a running request was put back since the cache was full.
queue_seconds            | float counter | vllm:request_queue_time_seconds_sum; nv_inference_queue_duration_us | inference | vllm-triton-metrics | - | Time that all requests together have waited.
""",
    ),
)
