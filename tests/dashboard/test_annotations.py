"""What was done to nodes, as notes on charts."""

from datetime import timedelta
from pathlib import Path

import pytest

from accounting.usage.model import cluster_key
from dashboard.data.annotations import Done, Note, align, done, labelled, notes, sentence
from dashboard.device.marks import Mark, with_notes
from dashboard.device.window import Window
from gpuvigil.model import (
    Acceptance,
    Act,
    Attribute,
    NodeAction,
    ScheduledNode,
    Scheduler,
    Setup,
    Subject,
)
from gpuvigil.model.annotation import Annotation
from tests.hub.in_process import HubThread

from .scene import NOON, node

HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
START = NOON - HOUR
WINDOW = Window(start=START, end=NOON, live=False)
OTHER = Subject(cluster=node().cluster, node="n-other")


def setup(before: timedelta, driver: str, of: Subject | None = None) -> Setup:
    return Setup(node=of or node(), at=NOON - before, values={Attribute.DRIVER: driver})


def said(at: timedelta, note: str, *nodes: str, deleted: bool = False) -> Annotation:
    return Annotation(
        id=note,
        cluster=node().cluster,
        note=note,
        by="ann",
        at=NOON - at,
        nodes=nodes,
        deleted=deleted,
    )


def test_what_was_done_in_the_window_is_noted_and_nothing_else() -> None:
    setups = [setup(2 * HOUR, "550"), setup(HOUR, "555"), setup(timedelta(minutes=9), "560")]
    drained = NodeAction(incident="i", node=node(), act=Act.DRAIN, at=START - SECOND, undo="u")
    back = NodeAction(incident="i", node=node(), act=Act.RESUME, at=NOON - SECOND, undo="u")
    late = Acceptance(node=node(), by="ann", note="diag", at=NOON)
    told = Done(setups=setups, actions=[drained, back], acceptances=[late])
    found = notes(told, START, NOON)
    assert [one.label for one in found] == ["Driver 555", "Driver 560", "given back"]
    assert "Driver: 555 → 560; " in sentence(found)
    assert sentence(()) == ""
    inside = Acceptance(node=node(), by="ann", note="diag", at=NOON - SECOND)
    assert notes(Done(acceptances=[inside]), START, NOON)[0].text == "accepted by ann: diag"
    assert notes(Done(), START, NOON) == ()


def test_a_roll_out_over_several_nodes_is_one_note_at_its_begin() -> None:
    minute = timedelta(minutes=1)
    setups = [
        *(setup(2 * HOUR, "550", of) for of in (node(), OTHER)),
        *(setup(at, "555", of) for at, of in ((20 * minute, node()), (30 * minute, OTHER))),
    ]
    (one,) = notes(Done(setups=setups), START, NOON)
    assert (one.at, one.text) == (NOON - 30 * minute, "Driver: 550 → 555, on 2 nodes")
    (own,) = notes(Done(setups=setups), START, NOON, [node()])
    assert (own.at, own.text) == (NOON - 20 * minute, "Driver: 550 → 555")


def test_an_annotation_is_of_its_nodes_or_of_the_whole_cluster() -> None:
    told = Done(
        annotations=[
            said(HOUR, "whole"),
            said(SECOND, "mine", node().node),
            said(SECOND, "theirs", OTHER.node),
            said(SECOND, "wrong", deleted=True),
            said(HOUR + SECOND, "before"),
            said(timedelta(), "after"),
        ]
    )
    shown = [one.label for one in notes(told, START, NOON, [node()])]
    assert shown == ["whole", "mine"]
    assert [one.label for one in notes(told, START, NOON)] == ["whole", "mine", "theirs"]
    elsewhere = Subject(cluster="elsewhere", node=node().node)
    assert notes(told, START, NOON, [elsewhere]) == ()


def test_maintenance_is_noted_at_its_begin_and_end_and_a_fault_is_none() -> None:
    states, half = ("MAINTENANCE", "IDLE"), NOON - HOUR / 2
    look = Scheduler(
        told_by=Subject(cluster=node().cluster, node="ctl"),
        at=NOON,
        nodes=(
            ScheduledNode(name=node().node, states=states, reason="BIOS", since=half),
            ScheduledNode(name="n-2", states=("DOWN",), reason="Not responding", since=half),
        ),
        left=(ScheduledNode(name=OTHER.node, states=states, since=START - SECOND, until=half),),
    )
    told = notes(Done(schedulers=[look]), START, NOON)
    assert [one.text for one in told] == ["maintenance over", "maintenance: BIOS"]


@pytest.mark.server
def test_the_hub_is_asked_for_one_node_or_for_all_of_its_cluster(tmp_path: Path) -> None:
    mine = [setup(2 * HOUR, "550"), setup(HOUR / 2, "555")]
    theirs = [setup(2 * HOUR, "550", OTHER), setup(HOUR / 4, "560", OTHER)]
    with HubThread(tmp_path) as process:
        hub = process.hub()
        hub.write_records([one.to_record() for one in (*mine, *theirs)])
        hub.write_records([said(SECOND, "deploy").to_record()])
        cluster = done(hub, node().cluster, START, NOON)
        own = done(hub, node().cluster, START, NOON, OTHER)
    shown = [one.label for one in notes(cluster, START, NOON)]
    assert shown == ["Driver 555", "Driver 560", "deploy"]
    assert [one.label for one in notes(own, START, NOON)] == ["Driver 560", "deploy"]
    assert said(SECOND, "deploy").to_record().subject == cluster_key(node().cluster)


def test_only_the_newest_are_said_and_how_many_came_before_them() -> None:
    many = [Note(at=NOON, label=f"{n}", text=f"<{n}>") for n in range(9)]
    assert sentence(many[1:]).startswith("Done in this time: 12:00:00 UTC on 31 Jan: <1>; ")
    assert "1 more, then" in sentence(many)
    assert "<0>" not in sentence(many)


def test_the_first_of_several_notes_has_the_words() -> None:
    two = [Note(at=NOON, label="a", text="a"), Note(at=NOON + SECOND, label="b", text="b")]
    assert list(labelled(two, (), SECOND)) == [(NOON, "a"), (NOON + SECOND, "")]
    assert list(labelled(two, (), SECOND / 2)) == [(NOON, "a"), (NOON + SECOND, "b")]


def test_words_at_an_end_of_the_chart_stand_beside_their_line() -> None:
    shares = {0.0: "left", 0.149: "left", 0.15: "center", 0.85: "center", 0.851: "right"}
    for share, side in shares.items():
        assert align(START + share * HOUR, START, NOON) == side


def test_where_a_note_is_close_to_an_event_the_event_has_the_words() -> None:
    setups = [setup(2 * HOUR, "1"), setup(HOUR / 2, "2" * 40)]
    (note,) = notes(Done(setups=setups), START, NOON)
    near = Mark(at=note.at + HOUR * 0.09, label="Xid 79", good=False)
    far = Mark(at=note.at + HOUR * 0.091, label="Xid 79", good=False)
    assert [mark.label for mark in with_notes([near], [note], WINDOW)] == ["", "Xid 79"]
    first, _ = with_notes([far], [note], WINDOW)
    assert first.good
    assert len(first.label) == 24
    assert first.label.startswith("Driver 222")
