"""`/metrics` of an alerts process: what its channels did, and how long that took."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuvigil.web.metrics_page import family

# The key of a channel's pulse, the metric, its type and its sentence.
_METRICS = (
    ("attempts_total", "attempts_total", "counter", "Attempts to deliver a message."),
    ("failures_total", "failures_total", "counter", "Attempts that were not taken."),
    ("seconds_total", "delivery_seconds_total", "counter", "Seconds that attempts took."),
    ("waiting", "waiting", "gauge", "Messages in hand; the rest of a backlog waits in the hub."),
    ("failures", "failures_in_a_row", "gauge", "Attempts that failed since the last that did not."),
    ("refusals", "refusals_in_a_row", "gauge", "Messages refused since the last that was taken."),
)


def exposition(channels: Sequence[Mapping[str, Any]], notices: Mapping[str, int]) -> str:
    """Return the metrics of channels' pulses, and of notices by state, in Prometheus's text format."""
    parts = [
        family(
            f"gpuvigil_alerts_{name}",
            kind,
            text,
            (({"channel": one["name"]}, one[key]) for one in channels),
        )
        for key, name, kind, text in _METRICS
    ]
    counted = (({"state": state}, count) for state, count in sorted(notices.items()))
    text = "Notices by what became of them."
    return "".join([*parts, family("gpuvigil_alerts_notices_total", "counter", text, counted)])
