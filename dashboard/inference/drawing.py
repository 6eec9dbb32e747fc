"""The tables of the inference page, as trees of elements."""

from collections.abc import Sequence

from gpuvigil.numbers_in_words import counted

from ..layout.grids import by_key, section
from ..layout.tree import Node, el
from ..lists.serving import ANSWERS
from .hub_queries import Tables

# The page's column titles, which are longer than a terminal's, by column key.
_SERVING = {
    "user": "User",
    "holder": "Allocated to",
    "gpus": "GPUs",
    "idle_gpus": "Idle now",
    "idle_for_seconds": "Idle for",
    "used_percent": "Used",
    "power_watts": "Power, W",
    "held_for_seconds": "Allocated for",
    "nodes": "Nodes",
    "known_by": "Known by",
    "command": "Command",
    "account": "Team",
    "cluster": "Cluster",
}
# GPUs of a silent node are not measured, which does not mean busy.
_UNKNOWN = {"idle_gpus": "not measured"}
_MODELS = {
    "model": "Model",
    "verdict": "Verdict",
    "replicas": "Replicas",
    "replicas_needed": "Needed",
    "requests_running_p95": "Running, p95",
    "requests_waiting_p95": "Waiting, p95",
    "kv_cache_p95_percent": "Cache, p95",
    "activity_percent": "GPUs active",
    "spare_gpu_hours": "Spare GPU-hours",
    "spare_cost": "Cost",
    "said": "Because",
    "advice": "To do",
    "user": "User",
    "cluster": "Cluster",
}


def page(found: Tables) -> Sequence[Node | None]:
    """Return the answer in a line, who serves now, and each model's last day."""
    return (
        _answer(found),
        section("Who serves", "now", found.serving, _SERVING, "gpuvigil top", _UNKNOWN),
        el(
            "section", *(el("p", line, class_="sub") for line in found.serving.notes), key="unknown"
        ),
        section("Models", "in the last day", found.models, _MODELS, "gpuvigil inference"),
    )


def _answer(found: Tables) -> Node | None:
    """Return how many serve on how many GPUs, and for how many requests are measured; None if none serves."""
    rows = [by_key(found.serving, row) for row in found.serving.rows]
    if not rows:
        return None
    gpus, idle, unmeasured = (
        sum(int(str(row[key] or 0)) for row in rows)
        for key in ("gpus", "idle_gpus", "unmeasured_gpus")
    )
    asked = sum(row["known_by"] == ANSWERS for row in rows)
    measured = "all" if asked == len(rows) else f"{asked:,} of {len(rows):,}" if asked else "none"
    said = (
        f"{counted(len(rows), 'inference server')} on {counted(gpus, 'GPU')},"
        f" {_at_rest(gpus, idle, unmeasured)}. Requests are measured for {measured}."
    )
    return el("p", el("b", said), class_="impact", key="answer")


def _at_rest(gpus: int, idle: int, unmeasured: int) -> str:
    """Say how many of the measured GPUs are at 0 %."""
    if unmeasured == gpus:
        return "none of them measured now"
    rest = f", {unmeasured:,} not measured" if unmeasured else ""
    return f"{f'{idle:,}' if idle else 'none'} at 0 % now{rest}"
