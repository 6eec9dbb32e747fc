"""What bounded a job over a window, as one bar over a line of times: a tree."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from accounting.jobs.bound import Bound
from gpuvigil.clock import duration, moment

from ..device.window import Window
from ..layout.tree import Node, el, wide
from .over_time import Run

_WIDTH, _HEIGHT = 1200.0, 46.0
_TICKS = 6
_ROOM = 7.0  # of one letter
KINDS = {
    Bound.COMPUTE: "compute",
    Bound.MEMORY: "memory",
    Bound.IN_NODE: "in-node",
    Bound.BETWEEN_NODES: "between",
    Bound.INPUT: "input",
    Bound.CHECKPOINT: "checkpoint",
    Bound.CPU: "cpu",
    Bound.NOTHING: "nothing",
    Bound.ON_CALL: "unsaid",
    Bound.EARLY: "unsaid",
    Bound.UNKNOWN: "unsaid",
}
MOST_LISTED = 40
_ASKED = "What bounded it, of the time: "


def strip(runs: Sequence[Run], window: Window, of: str) -> Node:
    """The bar, and the same in words, to be unfolded."""
    if not runs:
        return el(
            "section",
            el("h2", "What bounded it"),
            el("p", "Nothing was measured in this window.", class_="empty"),
            key="bounds",
        )
    return el(
        "section",
        el("h2", "What bounded it", el("small", f"{of}, UTC")),
        wide(_drawn(runs, window), "What bounded it over time"),
        _listed(runs),
        key="bounds",
    )


def _drawn(runs: Sequence[Run], window: Window) -> Node:
    return el(
        "svg",
        *(part for place, run in enumerate(runs) for part in _bar(run, window, place)),
        *_axis(window),
        viewBox=f"0 0 {_WIDTH:.0f} {_HEIGHT:.0f}",
        role="img",
        aria_label=_sentence(runs),
        class_="bounds",
        key="bar",
    )


def _bar(run: Run, window: Window, place: int) -> Sequence[Node]:
    left, right = (_x(at, window) for at in (run.start, run.end))
    width = max(right - left, 1.0)
    kind = KINDS[run.bound]
    parts = [
        el(
            "rect",
            x=f"{left:.1f}",
            y="0",
            width=f"{width:.1f}",
            height="24",
            class_=kind,
            key=f"run {place}",
        )
    ]
    if width > _ROOM * len(run.bound.value) + 12.0:
        parts.append(
            el(
                "text",
                run.bound.value,
                x=f"{left + width / 2:.1f}",
                y="16.5",
                class_=kind,
                key=f"name {place}",
            )
        )
    return parts


def _axis(window: Window) -> Sequence[Node]:
    found = []
    for place in range(_TICKS + 1):
        at = window.start + window.span * place / _TICKS
        kind = "first" if not place else "last" if place == _TICKS else "time"
        form = f"{at:%H:%M}" if window.span <= timedelta(days=1) else f"{at:%d %b %H:%M}"
        found.append(
            el("text", form, x=f"{_x(at, window):.1f}", y="41", class_=kind, key=f"tick {place}")
        )
    return found


def _x(at: datetime, window: Window) -> float:
    return _WIDTH * min(max((at - window.start) / window.span, 0.0), 1.0)


def shares(runs: Sequence[Run]) -> Sequence[tuple[Bound, float]]:
    """Of the time of which anything is known, the largest share first."""
    lengths: dict[Bound, timedelta] = {}
    for run in runs:
        lengths[run.bound] = lengths.get(run.bound, timedelta()) + (run.end - run.start)
    whole = sum(lengths.values(), timedelta())
    return sorted(
        ((bound, length / whole) for bound, length in lengths.items()), key=lambda it: -it[1]
    )


def _sentence(runs: Sequence[Run]) -> str:
    return f"{_ASKED}{', '.join(_share(*it) for it in shares(runs))}"


def _key(runs: Sequence[Run]) -> Sequence[Node]:
    """The same with the colours of the bar."""
    said: list[Node] = [_ASKED]
    for bound, share in shares(runs):
        said += [", "] if said[1:] else []
        swatch = el("i", class_=f"swatch {KINDS[bound]}", aria_hidden="true")
        said += [swatch, _share(bound, share)]
    return [*said, "."]


def _share(bound: Bound, share: float) -> str:
    return f"{bound.value} {100.0 * share:.0f} %"


def _listed(runs: Sequence[Run]) -> Node:
    """Newest first, each with why."""
    rows = (
        el(
            "li",
            el("time", moment(run.start)),
            f" {run.bound.value}, for {duration(run.end - run.start)}: {run.said}",
        )
        for run in runs[::-1][:MOST_LISTED]
    )
    return el(
        "details",
        el("summary", *_key(runs)),
        el("ol", *rows, class_="plain"),
        key="listed",
    )
