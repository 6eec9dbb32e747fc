"""What bounded a job over a window, as a bar over a time axis; a tree of elements."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from accounting.jobs.bound import Bound
from gpuvigil.clock import duration, moment
from gpuvigil.model import Incident
from gpuvigil.web import page_links

from ..device.window import Window
from ..layout.tree import Node, el, wide
from .over_time import HELD_UP, Run

_WIDTH, _HEIGHT = 1200.0, 46.0
_TICKS = 6
_ROOM = 7.0  # width of one letter, in units of the drawing
_OF_BOUNDS = {
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
KINDS = {**{bound.value: kind for bound, kind in _OF_BOUNDS.items()}, HELD_UP: "held"}
MOST_LISTED, MOST_HELD = 40, 3
_ASKED = "What bounded it, of the time: "


def strip(runs: Sequence[Run], window: Window, of: str) -> Node:
    """Return the bar, and the same in words, folded."""
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
        _held(runs),
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
    kind = KINDS[run.word]
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
    if width > _ROOM * len(run.word) + 12.0:
        parts.append(
            el(
                "text",
                run.word,
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


def shares(runs: Sequence[Run]) -> Sequence[tuple[str, float]]:
    """Return each bound's share of the known time, largest first."""
    lengths: dict[str, timedelta] = {}
    for run in runs:
        lengths[run.word] = lengths.get(run.word, timedelta()) + (run.end - run.start)
    whole = sum(lengths.values(), timedelta())
    return sorted(
        ((word, length / whole) for word, length in lengths.items()), key=lambda it: -it[1]
    )


def _sentence(runs: Sequence[Run]) -> str:
    return f"{_ASKED}{', '.join(_share(*it) for it in shares(runs))}"


def _key(runs: Sequence[Run]) -> Sequence[Node]:
    """Return the shares with the colours of the bar."""
    said: list[Node] = [_ASKED]
    for word, share in shares(runs):
        said += [", "] if said[1:] else []
        swatch = el("i", class_=f"swatch {KINDS[word]}", aria_hidden="true")
        said += [swatch, _share(word, share)]
    return [*said, "."]


def _share(word: str, share: float) -> str:
    return f"{word} {100.0 * share:.0f} %"


def _held(runs: Sequence[Run]) -> Node | None:
    """Return the incidents that held it up in this window, newest first, with durations."""
    found = [run for run in runs[::-1] if run.held_by is not None]
    if not found:
        return None
    said: list[Node] = []
    for run in found[:MOST_HELD]:
        assert run.held_by is not None
        said += [", "] if said else []
        said += [_incident(run.held_by), f" for {duration(run.end - run.start)}"]
    more = f" and {len(found) - MOST_HELD:,} more" if len(found) > MOST_HELD else ""
    return el("p", el("b", "Held up by "), *said, f"{more}.", key="held")


def _incident(one: Incident) -> Node:
    return el("a", one.title, href=page_links.incident_page(one.id))


def _listed(runs: Sequence[Run]) -> Node:
    """Return a folded list of all runs, newest first, each with its reason."""
    rows = (
        el(
            "li",
            el("time", moment(run.start)),
            f" {run.word}, for {duration(run.end - run.start)}: ",
            run.text if run.held_by is None else _incident(run.held_by),
        )
        for run in runs[::-1][:MOST_LISTED]
    )
    return el(
        "details",
        el("summary", *_key(runs)),
        el("ol", *rows, class_="plain"),
        key="listed",
    )
