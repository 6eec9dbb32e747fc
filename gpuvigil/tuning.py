"""Which limit would make a rule speak less often, as a command that tries it on the past first."""

from collections.abc import Mapping

from .settings import AnalyzerSettings

_DEFAULTS = AnalyzerSettings()

# By fault, the limit of `[analyzer]` that makes it rarer when it is doubled.
LIMITS: Mapping[str, str] = {
    "gpu_idle_held": "idle_after_seconds",
    "node_silent": "silent_after_seconds",
    "port_down": "port_down_seconds",
    "port_flapping": "port_flap_count",
    "gpu_hot": "steady_seconds",
    "gpu_clocks": "steady_seconds",
    "port_errors": "steady_seconds",
    "gpu_memory": "trend_seconds",
    "gpu_nvlink": "trend_seconds",
}


def tried_on_the_past(fault: str) -> str:
    """What to type, with an example's value: twice the default; empty where no limit says it."""
    key = LIMITS.get(fault)
    if key is None:
        return ""
    return f"gpuvigil backtest --last 7d --set analyzer.{key}={2 * getattr(_DEFAULTS, key):g}"
