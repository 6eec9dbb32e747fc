"""What was done to a node, as notes on its charts."""

from datetime import timedelta

from dashboard.device.annotations import notes, sentence, with_notes
from dashboard.device.marks import Mark
from dashboard.device.window import Window
from gpuvigil.model import Acceptance, Act, Attribute, NodeAction, Setup

from .scene import NOON, node

HOUR = timedelta(hours=1)
WINDOW = Window(start=NOON - HOUR, end=NOON, live=False)


def setup(before: timedelta, driver: str) -> Setup:
    return Setup(node=node(), at=NOON - before, values={Attribute.DRIVER: driver})


def test_what_was_done_in_the_window_is_noted_and_nothing_else() -> None:
    second = timedelta(seconds=1)
    setups = [setup(2 * HOUR, "550"), setup(HOUR, "555"), setup(timedelta(minutes=9), "560")]
    drained = NodeAction(
        incident="i", node=node(), act=Act.DRAIN, at=NOON - HOUR - second, undo="u"
    )
    back = NodeAction(incident="i", node=node(), act=Act.RESUME, at=NOON - second, undo="u")
    accepted = Acceptance(node=node(), by="ann", note="diag", at=NOON)
    found = notes(setups, [drained, back], accepted, WINDOW)
    assert [one.label for one in found] == ["Driver 555", "Driver 560", "given back"]
    assert "Driver: 555 → 560; " in sentence(found)
    assert sentence(()) == ""
    inside = Acceptance(node=node(), by="ann", note="diag", at=NOON - second)
    assert notes((), (), inside, WINDOW)[0].text == "accepted by ann: diag"
    assert notes((), (), None, WINDOW) == ()


def test_where_a_note_is_close_to_an_event_the_event_has_the_words() -> None:
    (note,) = notes([setup(2 * HOUR, "1"), setup(HOUR / 2, "2" * 40)], (), None, WINDOW)
    near = Mark(at=note.at + HOUR * 0.09, label="Xid 79", good=False)
    far = Mark(at=note.at + HOUR * 0.091, label="Xid 79", good=False)
    assert [mark.label for mark in with_notes([near], [note], WINDOW)] == ["", "Xid 79"]
    first, _ = with_notes([far], [note], WINDOW)
    assert first.good
    assert len(first.label) == 24
    assert first.label.startswith("Driver 222")
