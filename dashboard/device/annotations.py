"""What was done to a node in a window, as notes on its charts: versions, drains, acceptances; pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from accounting.hardware.node_changes import changed
from gpuvigil.clock import moment
from gpuvigil.model import Acceptance, Act, NodeAction, Setup

from .marks import Mark
from .window import Window

# Of marks nearer than this share of the window, the first has the words.
_NEAR = 0.09
_LONGEST = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One thing that somebody did."""

    at: datetime
    label: str  # over a chart
    text: str


def notes(
    setups: Iterable[Setup],
    actions: Iterable[NodeAction],
    accepted: Acceptance | None,
    window: Window,
) -> tuple[Note, ...]:
    """Those of the window, oldest first."""
    found = [
        Note(at=one.at, label=f"{one.what} {one.new}", text=f"{one.what}: {one.old} → {one.new}")
        for one in changed(setups, window.end)
    ]
    for action in actions:
        did = "drained" if action.act is Act.DRAIN else "given back"
        found.append(Note(at=action.at, label=did, text=f"{did} by gpuvigil"))
    if accepted is not None:
        text = f"accepted by {accepted.by}: {accepted.note}"
        found.append(Note(at=accepted.at, label="accepted", text=text))
    inside = (one for one in found if window.start <= one.at < window.end)
    return tuple(sorted(inside, key=lambda one: (one.at, one.text)))


def with_notes(marks: Sequence[Mark], of: Iterable[Note], window: Window) -> tuple[Mark, ...]:
    """The marks of events and those of notes; where two are close, an event has the words."""
    found = list(marks)
    for note in of:
        close = any(mark.label and abs(mark.at - note.at) <= window.span * _NEAR for mark in found)
        label = note.label if len(note.label) <= _LONGEST else f"{note.label[: _LONGEST - 1]}…"
        found.append(Mark(at=note.at, label="" if close else label, good=True))
    return tuple(sorted(found, key=lambda mark: mark.at))


def sentence(of: Sequence[Note]) -> str:
    """All of them in one line; empty for none."""
    said = "; ".join(f"{moment(one.at)} {one.text}" for one in of)
    return f"Done to this node in this window: {said}." if of else ""
